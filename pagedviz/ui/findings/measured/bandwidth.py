"""Bandwidth: how fast kernels read K and V, by block size."""

from collections.abc import Sequence

import streamlit as st

from pagedviz import measurements
from pagedviz.figures.kernel_bandwidth import bandwidth_by_block_size
from pagedviz.measurements import OURS, BadMeasurements, Row, contestants
from pagedviz.probe import Answer
from pagedviz.ui.elements.chart import chart
from pagedviz.ui.elements.markdown import plain

TABLE = "block size"


def show(answer: Answer) -> None:
    """Show this machine's GPU, if it has one, then the recorded measurements: a figure, and a line for each kernel."""
    if answer["gpu"]:
        rows = [
            Row(
                table=TABLE,
                case="here",
                who=OURS,
                unit="GB/s",
                block_size=int(row["block_size"]),
                head_dim=128,
                dtype="bfloat16",
                kv_dtype="bfloat16",
                microseconds=row["microseconds"],
                rate=row["gb_s"],
                error=row["error"],
                timed="graph",
            )
            for row in answer["rows"]
        ]
        caption = (
            f"Measured on this machine's {plain(answer['gpu'])} since the server started: one launch over 8 sequences "
            "of 8,192 tokens, 32 query and 8 KV heads, head_dim 128, bfloat16. Largest difference from dense "
            f"attention, of its largest value: {max(row['error'] for row in answer['rows']):.1e}."
        )
        _show(caption, rows, None, "here")
    try:
        recorded = measurements.load()
    except BadMeasurements as error:
        st.caption(f"{plain(str(error))}.")
        return
    table = recorded.table(TABLE)
    for shape in dict.fromkeys(row.shape for row in table if not row.reason):
        caption = f"{plain(recorded.label)}. {plain(shape)}, head_dim 128, bfloat16."
        _show(caption, [row for row in table if row.shape == shape], recorded.ceilings["read"], shape)


def _show(caption: str, rows: Sequence[Row], ceiling: float | None, key: str) -> None:
    st.caption(caption)
    figure = bandwidth_by_block_size(rows, ceiling)
    chart(figure, f"found-bandwidth-{key}", "Bytes of K and V read a second, by block size")
    ran = [row for row in rows if not row.reason]
    kernels = [kernel for kernel in contestants(rows) if any(row.who == kernel for row in ran)]
    st.markdown("\n".join(f"- {_spread(kernel, ran)}" for kernel in kernels))


def _spread(kernel: str, rows: Sequence[Row]) -> str:
    """How much one kernel loses between its best block size and its worst."""
    rates = {row.block_size: row.rate or 0.0 for row in rows if row.who == kernel}
    best, worst = max(rates, key=rates.__getitem__), min(rates, key=rates.__getitem__)
    if len(rates) == 1:
        return f"**{plain(kernel)}**: {rates[best]:,.0f} GB/s with blocks of {best}, the one size measured"
    return (
        f"**{plain(kernel)}**: {rates[best]:,.0f} GB/s at most, with blocks of {best}; {rates[worst]:,.0f} at least, "
        f"with blocks of {worst}: {1 - rates[worst] / rates[best]:.0%} less"
    )
