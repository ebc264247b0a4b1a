"""Fills the docstrings that the screen shows as sentences."""

import string
from collections.abc import Mapping, Sequence
from typing import Any

MOST_NAMED = 12  # items of a list; a sentence with a hundred block ids is too long


def named(items: Sequence[Any]) -> str:
    """Name the items, or the first of many and how many more."""
    first = ", ".join(str(item) for item in items[:MOST_NAMED])
    return first + (f" and {len(items) - MOST_NAMED} more" if len(items) > MOST_NAMED else "")


def count(number: int, noun: str, ending: str = "s") -> str:
    """Example: count(2, "block") -> "2 blocks"; count(2, "launch", "es") -> "2 launches"."""
    return f"{number} {noun}{'' if number == 1 else ending}"


def span(noun: str, first: int, number: int) -> str:
    """Example: span("position", 4, 3) -> "positions 4-6"; span("position", 4, 1) -> "position 4"."""
    return f"{noun} {first}" if number == 1 else f"{noun}s {first}-{first + number - 1}"


def ordinal(number: int) -> str:
    """Example: 1 -> "first", 4 -> "4th", 22 -> "22nd"."""
    if number <= 3:
        return ("first", "second", "third")[number - 1]
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number}{ending}"


class _Sentence(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec:
            return count(len(value) if isinstance(value, list | tuple) else value, format_spec)
        if isinstance(value, list | tuple):
            return named(value)
        return str(value)


def fill(template: str, numbers: Mapping[str, Any]) -> str:
    """Fill a template. A noun after a colon is counted, a list by its length; of a long list only the first items are
    named; white space is folded.

    Example: fill("{n:free block} of {ids}", {"n": 2, "ids": [7, 1]}) -> "2 free blocks of 7, 1".
    """
    return " ".join(_Sentence().vformat(template, (), numbers).split())
