from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from pagedviz.figures.style import FILLED, GOOD, REFERENCE, UNFILLED, laid_out

COUNTED = {
    "wasted": ("wasted slots", UNFILLED, ""),
    "hit": ("tokens a prefix could hit", GOOD, "/"),
    "entries": ("table entries", FILLED, ""),
    "copies": ("blocks copied on write", REFERENCE, "x"),
}


def counts_by_block_size(rows: Sequence[Mapping[str, int]]) -> go.Figure:
    """Wasted slots, tokens to hit, table entries and copies of one run at each block size: a bar for each count."""
    figure = go.Figure()
    for name, (label, colour, pattern) in COUNTED.items():
        figure.add_bar(
            x=[str(row["block_size"]) for row in rows],
            y=[row[name] for row in rows],
            name=label,
            marker={"color": colour, "pattern": {"shape": pattern}},
            text=[str(row[name]) for row in rows],
            textposition="outside",
            textangle=0,
            cliponaxis=False,
            hovertemplate="block_size %{x}: %{y}<extra>" + label + "</extra>",
        )
    figure.update_xaxes(title="block_size, tokens", type="category")
    figure.update_yaxes(title="count", rangemode="tozero")
    figure.update_layout(barmode="group")
    return laid_out(figure)
