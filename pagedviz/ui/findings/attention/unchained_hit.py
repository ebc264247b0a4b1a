"""UnchainedHit: what a sequence would get if a block were found by its own tokens alone."""

import streamlit as st

from pagedviz.probe import Answer
from pagedviz.ui.elements.markdown import plain
from pagedviz.ui.elements.text_table import text_table


def show(answer: Answer) -> None:
    """Show how far K, V and attention would be off, layer by layer."""
    seq_id, other = plain(answer["seq_id"]), plain(answer["other"])
    st.caption(
        f"{other}'s block {answer['block']} in the place of {seq_id}'s own {answer['own_block']}, and attention over "
        f"it from position {answer['first_behind']} on. How far each is from what is right for {seq_id}, at most:"
    )
    rows = [
        (f"layer {i}", *(f"{layer[name]:.2g}" for name in ("k_error", "v_error", "out_error")))
        for i, layer in enumerate(answer["layers"])
    ]
    text_table("A hit without the chain by layer", ("", "K of the block", "V of the block", "attention"), rows)
    found = f"attention is off by {answer['max_error']:.2g}; the tolerance is {answer['tolerance']:.0e}."
    if answer["ok"]:
        st.success(f"**Such a hit would be right:** {found}", icon=":material/check:")
    else:
        st.error(f"**Such a hit is wrong:** {found}", icon=":material/close:")
