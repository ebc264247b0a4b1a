"""Splits text into tokens: each word and each punctuation mark is one token."""

import regex

_TOKEN = regex.compile(r"[\p{L}\p{M}\p{N}_]+(?:['’][\p{L}\p{M}\p{N}_]+)*|(?!\s)\X")


def split(text: str) -> list[str]:
    """Split text into words and single punctuation marks. White space separates them and is dropped.

    Example: "Four score, and 7 years" -> ["Four", "score", ",", "and", "7", "years"]. An emoji is one token, however
    many code points it has, and so is a word with its accents and vowel signs.
    """
    return _TOKEN.findall(text)
