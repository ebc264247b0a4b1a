"""Radix: the radix tree at the stage's step, after the same operations."""

import streamlit as st

from pagedviz.probe import Answer
from pagedviz.ui.elements.markdown import plain
from pagedviz.ui.elements.radix_tree import radix_tree
from pagedviz.ui.elements.text_table import text_table


def show(answer: Answer) -> None:
    """Show the nodes with their pages, the pages that are in no node, and what every prompt hit."""
    size = answer["page_size"]
    each = "one token" if size == 1 else f"{size} tokens"
    st.caption(
        f"**The radix tree at this step, pages of {each}**, after the same operations. The small number is the page. "
        "Solid line: locked, for a sequence needs it. Dashed: may be evicted. Tinted: used last."
    )
    st.html(radix_tree(answer["nodes"], answer["own"], size))
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
