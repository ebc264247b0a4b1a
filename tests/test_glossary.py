"""The glossary has one row for one word."""

import re
from collections import Counter
from pathlib import Path

GLOSSARY = Path(__file__).parent.parent / "GLOSSARY.md"


def test_every_word_is_explained_once():
    rows = re.findall(r"^\| (.+?) \| .+ \|$", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)[1:]
    words = Counter(word for row in rows for word in row.split(", "))
    assert len(words) > 40
    assert [word for word, times in words.items() if times > 1] == []
