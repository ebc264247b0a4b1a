"""One look for all figures: the colours of Okabe and Ito, which colour-blind readers can tell apart, in both themes."""

import plotly.graph_objects as go

SEQUENCE_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#999999")
GOOD, BAD, REFERENCE = "#009E73", "#D55E00", "#888888"
FILLED, UNFILLED, FREE = "#0072B2", "#E69F00", "rgba(136, 136, 136, 0.25)"


def laid_out(figure: go.Figure) -> go.Figure:
    """Margins, legend and height that fit under the stage."""
    figure.update_layout(
        height=260,
        margin={"l": 60, "r": 20, "t": 24, "b": 44},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        showlegend=True,
    )
    return figure


def mark_step(figure: go.Figure, step: int) -> None:
    """A thin line at the step that the stage shows."""
    figure.add_vline(step, line={"color": REFERENCE, "width": 1})
