"""The radix tree below the stage, and what each order of the waiting was worth."""

import streamlit as st

from pagedviz.probe import Answer
from pagedviz.ui.address import plain
from pagedviz.ui.radix_html import radix_html
from pagedviz.ui.text_table import text_table

ORDERS = {"first_come": "first come", "longest_prefix_first": "longest prefix first"}


def show_tree(answer: Answer) -> None:
    """The tree as it is at the stage's step, whose pages are whose, and what every prompt hit."""
    size = answer["page_size"]
    each = "one token" if size == 1 else f"{size} tokens"
    st.caption(
        f"**The radix tree at this step, pages of {each}**, after the same operations. The small number is the page. "
        "Solid line: locked, for a sequence needs it. Dashed: may be evicted. Tinted: used last."
    )
    st.html(radix_html(answer["nodes"], answer["own"], size))
    in_tree = sum(len(node["pages"]) for node in answer["nodes"])
    own, free = len(answer["own"]), answer["num_free"]
    st.caption(f"{answer['num_pages']} pages: {in_tree} in the tree, {own} a sequence's own, {free} free.")
    sizes = list(answer["requests"][0]["pages"]) if answer["requests"] else []
    if sizes:
        text_table(
            "Tokens hit by prompt",
            (
                "prompt",
                "tokens",
                f"hit, blocks of {answer['block_size']}",
                *(f"hit, tree, pages of {s}" for s in sizes),
            ),
            [
                (f"**{r['seq_id']}**", r["num_tokens"], r["blocks"], *(r["pages"][s] for s in sizes))
                for r in answer["requests"]
            ],
        )
    if answer["reported"]:
        with st.expander("What the tree reported of the last operation"):
            st.markdown("\n".join(f"1. {plain(sentence)}" for sentence in answer["reported"]))


def show_orders(answer: Answer) -> None:
    """A row for each cache and order: who was served, with how many tokens hit."""
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
