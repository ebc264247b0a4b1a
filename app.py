"""pagedviz: `streamlit run app.py`. Page set-up, nothing else; `pagedviz.ui.router` chooses the screen."""

from pathlib import Path

import streamlit as st

from pagedviz.ui import router

ICON = Path(__file__).parent / "pagedviz" / "ui" / "icon.svg"

st.set_page_config(page_title="pagedviz", page_icon=ICON.as_posix(), layout="wide")
router.show()
