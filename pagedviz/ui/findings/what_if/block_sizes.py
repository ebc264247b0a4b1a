"""BlockSizes: the same run under several block sizes."""

import streamlit as st

from pagedviz.figures.counts_by_block_size import counts_by_block_size
from pagedviz.probe import Answer
from pagedviz.ui.elements.attention import show_error
from pagedviz.ui.elements.chart import chart
from pagedviz.ui.elements.markdown import plain
from pagedviz.ui.elements.text_table import text_table


def show(answer: Answer) -> None:
    """Show the counts as a figure and as numbers, a row for each block size."""
    rows = answer["rows"]
    one, other = (plain(seq_id) for seq_id in answer["pair"])
    chart(
        counts_by_block_size(rows),
        "found-block-sizes",
        "Wasted slots, tokens of a common prefix in full blocks, table entries and copies by block size",
    )
    st.caption(
        f"Counted after “{plain(answer['after'])}”. "
        f"Hit: tokens of {other} that a full block of {one} holds too, from the first block on."
    )
    text_table(
        "Counts by block size",
        (
            "block_size",
            "blocks",
            "wasted slots",
            "tokens hit",
            "table entries",
            "blocks copied",
            "bytes copied",
            "largest error",
        ),
        [
            (
                row["block_size"],
                row["num_blocks"],
                row["wasted"],
                row["hit"],
                row["entries"],
                row["copies"],
                f"{row['bytes_copied']:,}",
                f"{row['max_error']:.1e}",
            )
            for row in rows
        ],
    )
    worst = max(row["max_error"] for row in rows)
    show_error(worst, worst <= answer["tolerance"])
