"""Which page an address shows, and the bar with links to all pages."""

from collections.abc import Callable

import streamlit as st

from pagedviz import lesson as lessons
from pagedviz.ui import compute
from pagedviz.ui.elements.markdown import plain
from pagedviz.ui.links import Link, links
from pagedviz.ui.pages import glossary, home, lesson, sequences, speed

# Streamlit has no settings for these: less room above the first element, and in both themes a contrast of at least
# 4.5 to 1 for captions and for the primary button.
STYLE = """<style>
.stMainBlockContainer { padding: 1.2rem 1.6rem 3rem; }
.stAppHeader { display: none; }
[data-testid="stCaptionContainer"] { color: inherit; opacity: 0.82; }
[data-testid^="stBaseButton-primary"], [data-testid^="stBaseButton-primary"]:is(:hover, :active, :focus) {
  background: none; color: inherit; border: 2px solid currentColor; }
[data-testid^="stBaseButton-primary"]:hover { background: color-mix(in srgb, currentColor 10%, transparent); }
[data-testid^="stBaseButton-primary"] p { font-weight: 600; }
</style>"""

PAGES: dict[str, Callable[[], None]] = {
    "sequences": sequences.show,
    "speed": speed.show,
    "glossary": glossary.show,
}


def show() -> None:
    st.html(STYLE)
    name, page = st.query_params.get("lesson"), st.query_params.get("page")
    links(_bar(name, page), key="bar", end=compute.backend())
    if name is not None and name in lessons.names():
        lesson.show(name)
    elif page is not None and page in PAGES:
        PAGES[page]()
    else:
        if name is not None or page is not None:
            kind, wanted = ("page", page) if name is None else ("lesson", name)
            st.info(f"There is no {kind} “{plain((wanted or '')[:60])}”. This is the first screen.")
        home.show()


def _bar(name: str | None, page: str | None) -> list[Link]:
    return [
        Link("pagedviz", "", current=name is None and page is None),
        *(
            Link(each.title, f"lesson={each.name}", name == each.name, each.claim, menu="Lessons")
            for each in lesson.every()
        ),
        Link("Your sequences", "page=sequences", page == "sequences"),
        Link("Speed", "page=speed", page == "speed"),
        Link("Glossary", "page=glossary", page == "glossary"),
    ]
