"""A Plotly figure on the screen."""

import plotly.graph_objects as go
import streamlit as st


def chart(figure: go.Figure, key: str, alt: str) -> None:
    """Show a figure without Plotly's own buttons. `alt` describes it to a screen reader."""
    st.plotly_chart(figure, key=key, config={"displayModeBar": False}, alt=alt)
