"""Fills the docstrings that the screen shows as sentences."""

import string
from collections.abc import Mapping
from typing import Any


class _Sentence(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec:
            count = len(value) if isinstance(value, list | tuple) else value
            return f"{count} {format_spec}{'' if count == 1 else 's'}"
        if isinstance(value, list | tuple):
            return ", ".join(str(item) for item in value)
        return str(value)


def fill(template: str, numbers: Mapping[str, Any]) -> str:
    """Fill a template; the word after a colon is counted, a list by its length, and white space is folded.

    Example: fill("{n:free block} of {ids}", {"n": 2, "ids": [7, 1]}) -> "2 free blocks of 7, 1".
    """
    return " ".join(_Sentence().vformat(template, (), numbers).split())
