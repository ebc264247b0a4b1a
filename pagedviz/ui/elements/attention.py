"""Sentences about attention outputs: which one a probe looked at, and how far it is from dense attention."""

import streamlit as st

from pagedviz.probe import Answer
from pagedviz.ui.elements.markdown import plain


def newest_token(answer: Answer) -> str:
    """The token, layer and head of the answer."""
    return f"{plain(answer['seq_id'])}'s newest token, layer {answer['layer']}, query head {answer['head']}"


def show_error(max_error: float, ok: bool) -> None:
    """Show the largest distance from dense attention, and whether the tolerance allows it."""
    verdict = "within the tolerance" if ok else "**beyond the tolerance**"
    st.caption(f"Largest distance from dense attention in float64: {max_error:.1e}, {verdict}.")
