"""Plotly figures from numbers. They import neither streamlit nor torch."""
