"""Bandwidth by block size: this machine's GPU, if it has one, and what the repository has recorded."""

from collections.abc import Sequence

import streamlit as st

from pagedviz import measurements
from pagedviz.figures.kernel_bandwidth import bandwidth_by_block_size
from pagedviz.measurements import OURS, BadMeasurements, Row, contestants
from pagedviz.probe import Answer
from pagedviz.ui.address import plain

TABLE = "block size"


def show(answer: Answer) -> None:
    """A figure and a line for each kernel, first of this machine, then of the record."""
    if answer["gpu"]:
        rows = [
            Row(
                *(TABLE, "here", OURS, "GB/s", int(row["block_size"]), 128, "bfloat16", "bfloat16"),
                microseconds=row["microseconds"],
                rate=row["gb_s"],
                error=row["error"],
                timed="graph",
            )
            for row in answer["rows"]
        ]
        said = (
            f"Measured on this machine's {plain(answer['gpu'])} since the server started: one launch over 8 sequences "
            "of 8,192 tokens, 32 query and 8 KV heads, head_dim 128, bfloat16. Largest difference from dense "
            f"attention, of its largest value: {max(row['error'] for row in answer['rows']):.1e}."
        )
        _show(said, rows, None, "here")
    try:
        found = measurements.load()
    except BadMeasurements as error:
        st.caption(f"{plain(str(error))}.")
        return
    table = found.table(TABLE)
    for shape in dict.fromkeys(row.shape for row in table if not row.reason):
        said = f"{plain(found.label)}. {plain(shape)}, head_dim 128, bfloat16."
        _show(said, [row for row in table if row.shape == shape], found.ceilings["read"], shape)


def _show(said: str, rows: Sequence[Row], ceiling: float | None, key: str) -> None:
    st.caption(said)
    st.plotly_chart(
        bandwidth_by_block_size(rows, ceiling),
        key=f"found-bandwidth-{key}",
        config={"displayModeBar": False},
        alt="Bytes of K and V read a second, by block size",
    )
    ran = [row for row in rows if not row.reason]
    st.markdown("\n".join(f"- {_spread(who, ran)}" for who in contestants(rows) if any(row.who == who for row in ran)))


def _spread(who: str, rows: Sequence[Row]) -> str:
    """How much one kernel loses between its best block size and its worst."""
    rates = {row.block_size: row.rate or 0.0 for row in rows if row.who == who}
    best, worst = max(rates, key=rates.__getitem__), min(rates, key=rates.__getitem__)
    if len(rates) == 1:
        return f"**{plain(who)}**: {rates[best]:,.0f} GB/s with blocks of {best}, the one size measured"
    return (
        f"**{plain(who)}**: {rates[best]:,.0f} GB/s at most, with blocks of {best}; {rates[worst]:,.0f} at least, with "
        f"blocks of {worst}: {1 - rates[worst] / rates[best]:.0%} less"
    )
