"""Numbers to Plotly figures. No streamlit, no torch: a figure can be drawn anywhere."""
