from collections.abc import Sequence

import plotly.graph_objects as go

from pagedviz.figures.style import SEQUENCE_COLOURS, laid_out


def attention_weights(rows: Sequence[Sequence[float]], blocks: Sequence[str]) -> go.Figure:
    """How much attention the newest token pays to each block: rows [num_heads][num_blocks], each summing to 1."""
    figure = go.Figure()
    for head, row in enumerate(rows):
        figure.add_bar(
            x=list(blocks),
            y=list(row),
            name=f"query head {head}",
            marker_color=SEQUENCE_COLOURS[head % len(SEQUENCE_COLOURS)],
            text=[f"{weight:.2f}" for weight in row] if len(row) * len(rows) <= 24 else None,
            hovertemplate="%{x}: %{y:.4f}<extra>query head " + str(head) + "</extra>",
        )
    figure.update_yaxes(title="weight", range=[0, 1.08])
    figure.update_xaxes(type="category")
    figure.update_layout(barmode="group")
    return laid_out(figure)
