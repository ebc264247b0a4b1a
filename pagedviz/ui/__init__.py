"""The only place that imports streamlit: pages, and the stage component."""
