"""Links to places within the app: real anchors, followed without loading the page again.

A place is an address's query, like "lesson=06_copy_on_write&seed=3"; "" is the first screen. Every place lives at the
root path, because Streamlit's page probes for its server below any deeper path and logs an error for each miss.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import parse_qsl

import streamlit as st

HERE = Path(__file__).parent

_component = st.components.v2.component(
    "pagedviz_links",
    css=(HERE / "links.css").read_text(encoding="utf-8"),
    js=(HERE / "links.js").read_text(encoding="utf-8"),
)


@dataclass(frozen=True)
class Link:
    """Where a link leads and what it says. `current` marks the place that is shown; `note` explains it in a list.
    Links of one `menu` are folded behind its name in a bar."""

    label: str
    place: str
    current: bool = False
    note: str = ""
    menu: str = ""


def links(shown: Sequence[Link], key: str, look: str = "bar", label: str = "Pages", end: str = "") -> None:
    """Show links as a "bar", a "list" with notes, or a quiet "row". `end` is a word at the bar's right end."""
    data = {"links": [asdict(link) for link in shown], "look": look, "label": label, "end": end}
    followed = _component(data=data, key=key, on_followed_change=lambda: None).followed
    if followed is not None:
        st.query_params.from_dict(dict(parse_qsl(followed)))
        st.rerun()
