"""The glossary has one row for one word, and its terms in code quotes are those of the code."""

import re
import tokenize
from collections import Counter
from dataclasses import fields
from pathlib import Path

import pytest

from pagedviz.engine.policies.profiles import PROFILES
from pagedviz.scenario.operations import Op
from pagedviz.scenario.settings import CacheConfig

PROJECT = Path(__file__).parents[1]
GLOSSARY = (PROJECT / "GLOSSARY.md").read_text(encoding="utf-8")
TERMS = sorted(set(re.findall(r"`([^`]+)`", GLOSSARY)))


def test_every_word_is_explained_once():
    rows = re.findall(r"^\| (.+?) \| .+ \|$", GLOSSARY, re.MULTILINE)[1:]
    words = Counter(word for row in rows for word in row.split(", "))
    assert len(words) > 40
    assert [word for word, times in words.items() if times > 1] == []


@pytest.fixture(scope="module")
def identifiers():
    """The names in the program's code, without its comments and sentences, and the keys of the scenario format."""
    found = {field.name for field in fields(CacheConfig)} | set(Op.kinds)
    for path in [*PROJECT.glob("pagedviz/**/*.py"), *PROJECT.glob("kernels/**/*.py")]:
        with path.open("rb") as source:
            found |= {token.string for token in tokenize.tokenize(source.readline) if token.type == tokenize.NAME}
    return found


@pytest.mark.parametrize("term", [term for term in TERMS if term not in PROFILES])
def test_every_term_in_code_quotes_stands_in_the_code(term, identifiers):
    """A term may be an expression, such as `query_start_loc[i + 1]`."""
    assert [name for name in re.findall(r"[A-Za-z_]\w*", term) if name not in identifiers] == []


def test_a_term_that_nothing_is_called_by_is_found(identifiers):
    assert "ref_count" in identifiers
    assert "refcount" not in identifiers
