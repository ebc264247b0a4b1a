"""Orders: how many tokens are hit when the waiting prompts are served in another order."""

import streamlit as st

from pagedviz.probe import Answer
from pagedviz.ui.elements.markdown import plain
from pagedviz.ui.elements.text_table import text_table

ORDERS = {"first_come": "first come", "longest_prefix_first": "longest prefix first"}


def show(answer: Answer) -> None:
    """Show a row for each cache and order: the prompts as they were served, and how many tokens each hit."""
    st.caption(
        f"{', '.join(map(plain, answer['arrived']))} arrived in this order and have {answer['num_tokens']} tokens. "
        "Each row is a run of the real engine, from the moment at which all of them waited."
    )
    rows = [
        (
            f"**blocks of {answer['block_size']}**"
            if row["page_size"] is None
            else f"**tree, pages of {row['page_size']}**",
            ORDERS[row["order"]],
            f"**{row['hit']}**",
            ", ".join(f"{seq_id} {hit}" for seq_id, hit in row["served"]),
            answer["num_tokens"] - row["hit"],
            row["evicted"],
        )
        for row in answer["rows"]
    ]
    head = ("cache", "order", "tokens hit", "by whom, as served", "computed", "evicted")
    text_table("Tokens hit by order", head, rows)
