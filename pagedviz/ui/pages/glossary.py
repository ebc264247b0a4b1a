"""The glossary, as it stands in GLOSSARY.md."""

import streamlit as st

from pagedviz.run.source import PROJECT


def show() -> None:
    st.markdown((PROJECT / "GLOSSARY.md").read_text(encoding="utf-8"))
