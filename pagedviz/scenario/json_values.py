"""Reads single values of a scenario's JSON. A wrong value is refused with one sentence."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pagedviz.engine.log.events.base import Token
from pagedviz.scenario import tokenizer

MAX_TOKENS = 1_024  # written by one run, over all sequences
MAX_TOKEN_CHARACTERS = 64
MAX_NAME_CHARACTERS = 16


class ScenarioError(ValueError):
    """A scenario is wrong. One sentence says where, shows the value, and says what would be right."""


def only_known(data: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Refuse any key that is not in `known`."""
    for key in data:
        if key not in known:
            raise ScenarioError(f"{where} has {show(key)}, which is unknown; it may have {', '.join(sorted(known))}")


def whole(data: Mapping[str, Any], key: str, where: str, default: int, low: int, high: int) -> int:
    """A whole number, both ends included."""
    value = data.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ScenarioError(f"{where} is {show(value)}; it must be a whole number from {low:,} to {high:,}")
    return value


def part(data: Mapping[str, Any], key: str, where: str, default: float, *, below_1: bool = False) -> float:
    """A number from 0 to 1; with `below_1`, 1 itself is refused."""
    value = data.get(key, default)
    fits = not isinstance(value, bool) and isinstance(value, int | float) and 0 <= value <= 1
    if not fits or (below_1 and value == 1):
        upper = "up to, not including, 1" if below_1 else "to 1"
        raise ScenarioError(f"{where} is {show(value)}; it must be a number from 0 {upper}")
    return float(value)


def switch(data: Mapping[str, Any], key: str, where: str, default: bool) -> bool:
    value = data.get(key, default)
    if not isinstance(value, bool):
        raise ScenarioError(f"{where} is {show(value)}; it must be true or false")
    return value


def name(value: Any, where: str, what: str = "a sequence's name") -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_NAME_CHARACTERS or not value.isprintable():
        raise ScenarioError(f"{where} is {show(value)}; {what} has 1 to {MAX_NAME_CHARACTERS} printable characters")
    return value


def salt(data: Mapping[str, Any], where: str) -> str | None:
    """The name under "salt", or None where there is none."""
    return None if data.get("salt") is None else name(data["salt"], f"{where}.salt", "a salt")


def tokens_from_text(source: str, where: str = "text") -> tuple[Token, ...]:
    """Split text into tokens; raise ScenarioError if there are none, or if one is too long."""
    found: tuple[Token, ...] = tuple(tokenizer.split(source))
    if not found:
        raise ScenarioError(f"{where} is {show(source)}; it needs at least one word")
    return tokens(found, where)


def tokens(given: tuple[Any, ...], where: str) -> tuple[Token, ...]:
    """The given tokens, after a check: each is a string or an integer that every screen and file can hold."""
    if len(given) > MAX_TOKENS:
        raise ScenarioError(f"{where} has {len(given):,} tokens; a run writes at most {MAX_TOKENS:,}")
    for i, token in enumerate(given):
        if isinstance(token, bool) or not isinstance(token, str | int):
            raise ScenarioError(f"{where}[{i}] is {show(token)}; a token is a string or an integer")
        if isinstance(token, str) and not 0 < len(token) <= MAX_TOKEN_CHARACTERS:
            long = f"{show(token)} and has {len(token):,} characters"
            raise ScenarioError(f"{where}[{i}] is {long}; a token has 1 to {MAX_TOKEN_CHARACTERS}")
        if isinstance(token, str) and not _is_text(token):
            raise ScenarioError(f"{where}[{i}] is {show(token)}; half of a surrogate pair is no character")
        if isinstance(token, int) and not -(2**53) < token < 2**53:
            raise ScenarioError(f"{where}[{i}] is {show(token)}; an integer token lies between -2**53 and 2**53")
    return given


def text_or_tokens(data: Mapping[str, Any], where: str, of: str) -> tuple[Token, ...]:
    """The tokens under "text" or "tokens". Exactly one of the two must be there; `of` names the operation."""
    if ("text" in data) == ("tokens" in data):
        raise ScenarioError(f'{where} ({of}) needs either "text" or "tokens"')
    if "text" in data:
        if not isinstance(data["text"], str):
            raise ScenarioError(f"{where}.text is {show(data['text'])}; it must be a string")
        return tokens_from_text(data["text"], f"{where}.text")
    given = data["tokens"]
    if not isinstance(given, list) or not given:
        raise ScenarioError(f"{where}.tokens is {show(given)}; it must be a list of at least one string or integer")
    return tokens(tuple(given), f"{where}.tokens")


def tokens_from_json(value: Any, where: str) -> tuple[Token, ...]:
    """Tokens that are given as text or as a list."""
    if isinstance(value, str):
        return tokens_from_text(value, where)
    if not isinstance(value, list) or not value:
        raise ScenarioError(f"{where} is {show(value)}; it must be text or a list of at least one token")
    return tokens(tuple(value), where)


def show(value: Any) -> str:
    """A value as an error sentence shows it: short JSON."""
    try:
        shown = json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:
        return "nested too deeply to show"
    shown = shown.encode("utf-8", "backslashreplace").decode()
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _is_text(value: str) -> bool:
    """Whether it can be written as UTF-8. JSON allows half of a surrogate pair; no file, link or screen takes it."""
    return not any("\ud800" <= character <= "\udfff" for character in value)
