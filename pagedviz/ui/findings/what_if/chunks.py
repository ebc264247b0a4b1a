"""Chunks: what it costs to compute the prompt of one request in several ways."""

import streamlit as st

from pagedviz.probe import Answer
from pagedviz.ui.elements.markdown import plain
from pagedviz.ui.elements.text_table import text_table
from pagedviz.ui.elements.timetables import name_of, show_timetables


def show(answer: Answer) -> None:
    """Show a row for each way of computing the prompt; folded below it, the timetable of each."""
    seq_id = plain(answer["request"])
    st.caption(
        f"{seq_id}'s prompt, computed in {len(answer['others'])} ways, each run to its end. K and V are counted once a "
        "chunk for each token it attends to, scores once for each token that asks. The wait is the longest of anybody "
        "else from one word to the next."
    )
    rows = [
        (
            f"**{name_of(table)}**",
            table["budget"],
            table["chunks"],
            f"**{table['read']}**",
            table["scores"],
            table["first_word"],
            f"**{table['wait']['steps']}**",
            f"**{table['wait']['tokens']}**",
            table["most"],
        )
        for table in answer["others"]
    ]
    head = (
        "way",
        "budget",
        "chunks",
        "K and V read",
        "scores",
        f"steps to {seq_id}'s first word",
        "wait, steps",
        "wait, tokens",
        "most in a step",
    )
    text_table("Ways to compute a prompt", head, rows)
    with st.expander("Step by step"):
        show_timetables(answer, [(name_of(table), table) for table in answer["others"]])
