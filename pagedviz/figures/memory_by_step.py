from collections.abc import Sequence

import plotly.graph_objects as go

from pagedviz.figures.style import FILLED, FREE, UNFILLED, laid_out, mark_step
from pagedviz.run.memory import Memory


def memory_by_step(memory: Sequence[Memory], step: int) -> go.Figure:
    """Slots of the device pool in each state: filled, unfilled in a used block (the only waste of paging), and free."""
    figure = go.Figure()
    x = list(range(len(memory)))
    for name, values, colour in (
        ("filled", [m.filled for m in memory], FILLED),
        ("unfilled, in a used block", [m.unfilled for m in memory], UNFILLED),
        ("free", [m.free for m in memory], FREE),
    ):
        figure.add_scatter(
            x=x,
            y=values,
            name=name,
            stackgroup="slots",
            line={"shape": "hv", "width": 0.5, "color": colour},
            fillcolor=colour,
            hovertemplate="step %{x}: %{y} slots<extra>" + name + "</extra>",
        )
    if any(m.host_blocks for m in memory):
        figure.add_scatter(
            x=x,
            y=[m.host_blocks for m in memory],
            name="blocks on the host",
            yaxis="y2",
            line={"shape": "hv", "color": "#CC79A7", "dash": "dot"},
            hovertemplate="step %{x}: %{y} blocks<extra>on the host</extra>",
        )
        figure.update_layout(yaxis2={"title": "host blocks", "overlaying": "y", "side": "right", "rangemode": "tozero"})
    mark_step(figure, step)
    figure.update_yaxes(title="slots on the device", rangemode="tozero", selector=0)
    figure.update_xaxes(title="step", range=[-0.5, max(1, len(memory) - 0.5)])
    return laid_out(figure)
