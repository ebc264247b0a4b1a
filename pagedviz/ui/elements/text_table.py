"""A table that can be scrolled by itself on a narrow screen, also by keyboard. Markdown's tables cannot."""

import re
from collections.abc import Iterable, Sequence
from html import escape

import streamlit as st

STYLE = """<style>
.found { overflow-x: auto; margin-bottom: 0.6rem; }
.found table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.found :is(th, td) { border: 1px solid rgb(128 128 128 / 0.3); padding: 0.25rem 0.7rem; text-align: right; }
.found :is(th, td):first-child { text-align: left; }
.found thead th { font-weight: 600; }
.found tbody th { font-weight: inherit; }
.found code { padding: 0 0.25em; border-radius: 0.25em; background: rgb(128 128 128 / 0.18); font-weight: 600; }
</style>"""


def text_table(label: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Show a table. The first cell of each row names the row.

    In a cell, **bold** and `code` are as in Markdown, everything else is text. Its lines break only after commas.
    """
    top = "".join(f'<th scope="col">{_marked(cell)}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{_cell(name)}</th>{"".join(f"<td>{_cell(cell)}</td>" for cell in cells)}</tr>'
        for name, *cells in rows
    )
    st.html(
        f'{STYLE}<div class="found" tabindex="0" role="region" aria-label="{escape(label)}">'
        f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(cell: object) -> str:
    return re.sub("(?<!,) ", "\u00a0", _marked(cell))


def _marked(cell: object) -> str:
    marked = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", escape(str(cell)))
    return re.sub(r"`(.+?)`", r"<code>\1</code>", marked)
