"""The address line. It holds what is on the screen, so that a link shows the same thing elsewhere."""

import base64
import binascii
import json
import zlib
from functools import lru_cache

import streamlit as st

from pagedviz.scenario import scenario
from pagedviz.scenario.json_values import ScenarioError
from pagedviz.scenario.scenario import Scenario

MAX_LINK_BYTES = 30_000  # browsers and proxies take more; a longer run is offered as a file only


def whole_number(name: str, low: int, high: int) -> int | None:
    """A number of the address; None where the address has none, or one that is not from `low` to `high`."""
    given = st.query_params.get(name, "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 10 and low <= int(given) <= high else None


def start_step(key: str, default: int, last: int) -> int:
    """The step at which a run starts in this session: that of the address it was opened with, else `default`."""
    starts: dict[str, int] = st.session_state.setdefault("starts", {})
    if key not in starts:
        given = whole_number("step", 0, last)
        starts[key] = default if given is None else given
    return starts[key]


@lru_cache(maxsize=64)
def encode(shown: Scenario) -> str | None:
    """A scenario as a word for the address; None when it is too long for a link."""
    text = json.dumps(shown.to_json(), ensure_ascii=False, separators=(",", ":")).encode()
    word = base64.urlsafe_b64encode(zlib.compress(text, 9)).decode().rstrip("=")
    return word if len(word) <= MAX_LINK_BYTES else None


def decode(word: str) -> Scenario:
    """The scenario of a link. Raises ScenarioError with one sentence when the link was damaged."""
    if len(word) > MAX_LINK_BYTES:
        raise ScenarioError(f"the link has {len(word):,} characters; at most {MAX_LINK_BYTES:,} make a scenario")
    try:
        packed = base64.urlsafe_b64decode(word + "=" * (-len(word) % 4))
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(packed, scenario.MAX_FILE_BYTES + 1)
        if not unpacker.eof:
            raise zlib.error("cut")
    except (ValueError, binascii.Error, zlib.error):
        raise ScenarioError("the link is damaged or was cut, so it holds no scenario: copy it whole") from None
    return scenario.parse(text)
