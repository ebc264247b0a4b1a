"""SwapOrRecompute: what a preemption copies, computes again and hits, counted."""

import streamlit as st

from pagedviz.probe import Answer
from pagedviz.ui.elements.markdown import plain
from pagedviz.ui.elements.text_table import text_table


def show(answer: Answer) -> None:
    """Show a row for each preemption and block size. Blocks that are still on the host are counted one way only."""
    rows = answer["rows"]
    st.caption(
        f"Counted after “{plain(answer['after'])}”, out + back. A copy takes one block of one tensor: K or V of one of "
        f"the {answer['num_layers']} layers. Staged: what `pagedviz/runtime/transfers.py` copied when it was given all "
        "blocks of a request at once. Both ways to copy moved the same random bits, and gave the same."
    )
    head = ["", "block_size", "preempted, with tokens", "blocks", "copies", "bytes", "staged copies"]
    recomputes = any(row["preemption"] != "swap" for row in rows)
    if recomputes:
        head += ["tokens computed again", "tokens hit"]
    cells = []
    for row in rows:
        preempted = ", ".join(f"{one['seq_id']} {one['had']}" for one in row["preempted"])
        moved = [_both(row["out"][what], row["back"][what]) for what in ("blocks", "copies", "bytes", "staged")]
        again = [f"**{row['again']}**", row["hit"]] if recomputes else []
        cells.append((f"**{row['preemption']}**", row["block_size"], preempted, *moved, *again))
    text_table("What a preemption takes, by block size", head, cells)


def _both(out: int, back: int) -> str:
    return f"{out:,} + {back:,}" if out or back else "0"
