import math
from collections.abc import Sequence

import plotly.graph_objects as go

from pagedviz.figures.style import BAD, GOOD, REFERENCE, laid_out, mark_step
from pagedviz.run.trace import Check

FLOOR = 1e-9  # an error of exactly 0 has no logarithm: it is drawn here


def error_by_step(checks: Sequence[Check | None], step: int) -> go.Figure:
    """Largest |paged - dense| of each state, logarithmic. States not checked yet are absent."""
    figure = go.Figure()
    for name, wanted, colour, symbol in (("within tolerance", True, GOOD, "circle"), ("failed", False, BAD, "x")):
        points = [(k, c) for k, c in enumerate(checks) if c is not None and (c.compared or not c.ok) and c.ok == wanted]
        if points:
            figure.add_scatter(
                x=[k for k, _ in points],
                y=[_height(check.max_error) for _, check in points],
                customdata=["not finite" if c.max_error is None else f"{c.max_error:.2e}" for _, c in points],
                hovertemplate="step %{x}: %{customdata}<extra></extra>",
                name=name,
                mode="markers",
                marker={"color": colour, "symbol": symbol, "size": 7},
            )
    tolerance = next((check.tolerance for check in checks if check is not None), None)
    if tolerance is not None:
        figure.add_hline(
            tolerance, line={"color": REFERENCE, "dash": "dash"}, annotation_text=f"tolerance {tolerance:g}"
        )
    mark_step(figure, step)
    figure.update_yaxes(
        type="log", title="max |paged − dense|", exponentformat="power", range=[math.log10(FLOOR) - 0.2, -3.5]
    )
    figure.update_xaxes(title="step", range=[-0.5, max(1, len(checks) - 0.5)])
    return laid_out(figure)


def _height(error: float | None) -> float:
    return 1e-4 if error is None else min(max(error, FLOOR), 1e-4)
