"""A link holds a scenario; a damaged one is refused with a sentence."""

import base64
import zlib

import pytest

pytest.importorskip("streamlit")

from pagedviz.scenario.json_values import ScenarioError
from pagedviz.scenario.operations import Add
from pagedviz.scenario.scenario import Scenario, parse
from pagedviz.ui import address
from tests.engine.engine_cases import EXAMPLE

SHOWN = parse(EXAMPLE)


def pack(text: bytes) -> str:
    return base64.urlsafe_b64encode(zlib.compress(text)).decode().rstrip("=")


def test_link_gives_back_its_scenario():
    for shown in (SHOWN, Scenario(), Scenario(7, ops=(Add("🙂", ("שלום", "<b>", 7)),))):
        word = address.encode(shown)
        assert word.isascii()
        assert address.decode(word) == shown


def test_link_cut_anywhere_is_refused_with_a_sentence():
    word = address.encode(SHOWN)
    for length in range(len(word)):
        with pytest.raises(ScenarioError, match="the link is damaged or was cut"):
            address.decode(word[:length])


@pytest.mark.parametrize("word", ["%%%", "é", "AAAA", "a", pack(b"x")[:-3] + "AAA"])
def test_word_that_is_no_link_is_refused_with_a_sentence(word):
    with pytest.raises(ScenarioError, match="the link is damaged or was cut"):
        address.decode(word)


def test_link_that_unpacks_to_something_else_is_refused_as_a_file_is():
    with pytest.raises(ScenarioError, match='"pagedviz" is 2; this program reads version 1'):
        address.decode(pack(b'{"pagedviz": 2}'))


def test_link_that_unpacks_to_gigabytes_is_refused_before_it_does():
    with pytest.raises(ScenarioError):
        address.decode(pack(b"x" * 20_000_000))


def test_run_too_long_for_a_link_gets_none():
    words = tuple(f"{i * 7919 % 1009:x}{i * 104729:x}" for i in range(1024))
    long = Scenario(ops=tuple(Add(f"S{i}", (f"{'ab'[i % 2]}{word}" * 4,)) for i, word in enumerate(words[:256])))
    assert address.encode(long) is None or len(address.encode(long)) <= address.MAX_LINK_BYTES
    with pytest.raises(ScenarioError, match="at most 30,000 make a scenario"):
        address.decode("A" * 30_001)
