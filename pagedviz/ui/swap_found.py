"""Swap beside recompute: what was counted, and what was timed where there is a GPU."""

import streamlit as st

from pagedviz.probe import Answer
from pagedviz.ui.address import plain
from pagedviz.ui.text_table import text_table


def show_counts(answer: Answer) -> None:
    """A row for each preemption and block size; what is on the host still is counted one way only."""
    rows = answer["rows"]
    st.caption(
        f"Counted after “{plain(answer['after'])}”, out + back. A copy takes one block of one tensor: K or V of one of "
        f"the {answer['num_layers']} layers. Staged: what `pagedviz/runtime/cache/transfers.py` copied when it was "
        "given all blocks of a request at once. Both ways to copy moved the same random bits, and gave the same."
    )
    head = ["", "block_size", "preempted, with tokens", "blocks", "copies", "bytes", "staged copies"]
    recomputes = any(row["preemption"] != "swap" for row in rows)
    if recomputes:
        head += ["tokens computed again", "tokens hit"]
    cells = []
    for row in rows:
        who = ", ".join(f"{one['seq_id']} {one['had']}" for one in row["preempted"])
        moved = [_both(row["out"][what], row["back"][what]) for what in ("blocks", "copies", "bytes", "staged")]
        again = [f"**{row['again']}**", row["hit"]] if recomputes else []
        cells.append((f"**{row['preemption']}**", row["block_size"], who, *moved, *again))
    text_table("What a preemption takes, by block size", head, cells)


def _both(out: int, back: int) -> str:
    return f"{out:,} + {back:,}" if out or back else "0"


def show_times(answer: Answer) -> None:
    """What this machine's GPU took; or why there is no time to show."""
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
