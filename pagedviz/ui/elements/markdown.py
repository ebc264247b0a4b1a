"""The learner's text in Markdown."""

import re


def plain(text: str) -> str:
    """Escape a text so that Streamlit shows it as it is: no Markdown, HTML, formula or icon."""
    escaped = re.sub(r"([\\`*\[\]<$~])", r"\\\1", text)
    return re.sub(r"^(?=[#>+=-])|(?<!\w)(?=_)|(?=_(?!\w))|(?=:\w)", r"\\", escaped)
