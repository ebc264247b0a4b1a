"""Fills the docstrings that the screen shows as sentences."""

import string
from collections.abc import Mapping, Sequence
from typing import Any

MOST_NAMED = 12  # of a list; a sentence of a hundred block ids is not read


def named(items: Sequence[Any]) -> str:
    """Name the items, or the first of many and how many more."""
    first = ", ".join(str(item) for item in items[:MOST_NAMED])
    return first + (f" and {len(items) - MOST_NAMED} more" if len(items) > MOST_NAMED else "")


def count(number: int, noun: str) -> str:
    """Example: count(2, "block") -> "2 blocks"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


class _Sentence(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec:
            return count(len(value) if isinstance(value, list | tuple) else value, format_spec)
        if isinstance(value, list | tuple):
            return named(value)
        return str(value)


def fill(template: str, numbers: Mapping[str, Any]) -> str:
    """Fill a template; the word after a colon is counted, a list by its length, a long list is named in part, and
    white space is folded.

    Example: fill("{n:free block} of {ids}", {"n": 2, "ids": [7, 1]}) -> "2 free blocks of 7, 1".
    """
    return " ".join(_Sentence().vformat(template, (), numbers).split())
