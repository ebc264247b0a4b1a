from collections.abc import Sequence

import plotly.graph_objects as go

from pagedviz.figures.style import REFERENCE, SEQUENCE_COLOURS, laid_out
from pagedviz.measurements import Row, cases, contestants

SYMBOLS = ("circle", "diamond", "square", "triangle-up", "x", "cross")


def bandwidth_by_block_size(rows: Sequence[Row], ceiling: float | None) -> go.Figure:
    """GB/s by block size, a line for each contestant; a dashed line, if known, for the rate of a plain read."""
    figure = go.Figure()
    ran = [row for row in rows if not row.reason]
    for i, contestant in enumerate(contestants(rows)):
        theirs = sorted((row for row in ran if row.who == contestant), key=lambda row: row.block_size)
        if not theirs:
            continue
        figure.add_scatter(
            x=[str(row.block_size) for row in theirs],
            y=[row.rate for row in theirs],
            customdata=[row.microseconds for row in theirs],
            name=contestant,
            mode="lines+markers",
            line={"color": SEQUENCE_COLOURS[i % len(SEQUENCE_COLOURS)]},
            marker={"symbol": SYMBOLS[i % len(SYMBOLS)], "size": 9},
            hovertemplate="block_size %{x}: %{y:,.0f} GB/s, %{customdata:,.1f} µs<extra>" + contestant + "</extra>",
        )
    if ceiling is not None:
        figure.add_hline(ceiling, line={"color": REFERENCE, "dash": "dash"})
    sizes = sorted({row.block_size for row in ran})
    figure.update_xaxes(
        title="block_size" + _dashed(ceiling),
        type="category",
        categoryorder="array",
        categoryarray=[str(size) for size in sizes],
    )
    top = max([ceiling or 0.0, *(row.rate or 0.0 for row in ran)]) or 1.0
    figure.update_yaxes(title="GB/s", range=[0, top * 1.12])
    return laid_out(figure).update_layout(height=360)


def rate_by_case(rows: Sequence[Row], ceiling: float | None = None) -> go.Figure:
    """The rate of each contestant in each case: a line of marks a case; further right is better."""
    figure = go.Figure()
    ran = [row for row in rows if not row.reason]
    for i, contestant in enumerate(contestants(rows)):
        theirs = [row for row in ran if row.who == contestant]
        if theirs:
            figure.add_scatter(
                x=[row.rate for row in theirs],
                y=[_in_lines(row.case) for row in theirs],
                customdata=[(row.case, row.microseconds) for row in theirs],
                name=contestant,
                mode="markers",
                marker={
                    "color": SEQUENCE_COLOURS[i % len(SEQUENCE_COLOURS)],
                    "symbol": SYMBOLS[i % len(SYMBOLS)],
                    "size": 11,
                    "opacity": 0.85,
                },
                hovertemplate="%{customdata[0]}: %{x:,.0f} "
                + theirs[0].unit
                + ", %{customdata[1]:,.1f} µs<extra>"
                + contestant
                + "</extra>",
            )
    if ceiling is not None:
        figure.add_vline(ceiling, line={"color": REFERENCE, "dash": "dash"})
    shown = [_in_lines(case) for case in cases(ran)]
    figure.update_xaxes(title=(ran[0].unit if ran else "") + _dashed(ceiling), rangemode="tozero")
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=shown[::-1], automargin=True)
    line = 44 if any("<br>" in case for case in shown) else 34
    return laid_out(figure).update_layout(height=140 + line * len(shown))


def _dashed(ceiling: float | None) -> str:
    """The label of the dashed line, below the figure: beside the line it would cover other lines."""
    return f"; dashed: {ceiling:,.0f} GB/s, a plain read" if ceiling else ""


def _in_lines(case: str) -> str:
    """Break a case's name into lines, so that on a narrow screen the names leave room for the marks."""
    return case.replace(", ", ",<br>")
