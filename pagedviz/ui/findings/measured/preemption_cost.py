"""WaysBack: how long a GPU takes to swap a sequence out and in, and to compute it again."""

import streamlit as st

from pagedviz.probe import Answer
from pagedviz.ui.elements.markdown import plain
from pagedviz.ui.elements.text_table import text_table


def show(answer: Answer) -> None:
    """Show what this machine's GPU took, or why there is no time to show."""
    tokens, layers = f"{answer['num_tokens']:,}", answer["num_layers"]
    if not answer["gpu"]:
        st.caption(
            f"Nothing was timed: the kernels run in “{plain(answer['backend'])}” here, whose times say nothing of "
            f"a GPU's. With an NVIDIA GPU, {tokens} tokens of {layers} layers are swapped here, and computed again."
        )
        return
    rows = answer["rows"]
    worst = max(row["error"] for row in rows)
    st.caption(
        f"Measured on this machine's {plain(answer['gpu'])} since the server started: {tokens} tokens of {layers} "
        f"layers shaped like Llama 3 8B's, bfloat16, {rows[0]['bytes'] / 2**20:,.0f} MiB each way, pinned host memory; "
        "medians by GPU events, after a warm-up. Each plain copy is a call of its own from Python. Recompute is one "
        "prefill: matrix products with random weights, stores and attention, whose largest difference from dense "
        f"attention was {worst:.1e} of its largest value."
    )
    cells = [
        (
            row["block_size"],
            f"{row['copies']:,}",
            f"{row['plain_ms']:,.2f}",
            f"{row['staged']:,}",
            f"{row['staged_ms']:,.2f}",
            f"{row['recompute_ms']:,.2f}",
        )
        for row in rows
    ]
    head = ("block_size", "copies, out and in", "ms", "staged copies", "ms", "recompute, ms")
    text_table("Milliseconds by block size", head, cells)
