"""The settings of the sandbox: one form, which is applied as a whole."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import streamlit as st

from pagedviz.engine.policies.profiles import POLICIES, PROFILES
from pagedviz.scenario import json_values, settings
from pagedviz.scenario.json_values import ScenarioError
from pagedviz.scenario.settings import CacheConfig
from pagedviz.ui.sandbox.sandbox import Sandbox

TITLE = "Cache, model and policies"
MAX_SEED = 2**53 - 1  # a browser holds larger whole numbers inexactly
OF_PROFILE = "as the profile"
ALL_TOKENS = "none"

POOLS = (("block_size", ", tokens"), ("num_blocks", ", device"), ("host_blocks", ""), ("host_chunks", ""))
MODEL = (("num_layers", ""), ("num_heads", ", query"), ("num_kv_heads", ""), ("head_dim", ", even"))
SWITCHES = (
    ("Shuffle the free queue", "scatter"),
    ("Spill by itself when full", "auto_spill"),
    ("Cache prefixes", "prefix_caching"),
    ("Allow fork in a profile without", "fork"),
)
HELP = {
    "host_chunks": "Copies of cached blocks that the host keeps, to be loaded instead of computed again. "
    "They are found by their hash, so prefixes must be cached.",
    "num_drafts": "Tokens that are guessed for each request in a step, and verified by one launch. 0: none.",
    "min_confidence": "The drafts are cut before the first whose confidence is below.",
    "load_limit": "Drafts that one launch verifies at most, over all requests.",
}


def show(sandbox: Sandbox, version: int) -> None:
    """Show the form. `version` changes with the scenario; as part of each key it makes the fields show the new one."""
    now = sandbox.scenario.cache

    def key(name: str) -> str:
        return f"sandbox-{name}-{version}"

    def given(names: Iterable[str]) -> dict[str, Any]:
        return {name: st.session_state[key(name)] for name in names}

    def number(name: str, value: int, low: int, high: int, note: str = "") -> None:
        label, step = f"{name}{note} ({low:,} to {high:,})", 2 if name == "head_dim" else 1
        st.number_input(label, low, high, value, step=step, key=key(name), help=HELP.get(name))

    def chosen() -> dict[str, Any]:
        return {
            **given(["profile", *(name for name, _ in (*POOLS, *MODEL)), *(name for _, name in SWITCHES)]),
            "window": st.session_state[key("window")] or None,
            "groups": windows_from_text(st.session_state[key("groups")]),
            "scheduler": given([*settings.SCHEDULER_RANGES, "watermark"]),
            "speculation": given([*settings.SPECULATION_RANGES, "min_confidence"]),
            "policies": {kind: name for kind, name in given(POLICIES).items() if name != OF_PROFILE},
        }

    def apply() -> None:
        sandbox.set_cache(chosen, st.session_state[key("seed")])

    with st.expander(TITLE, key="sandbox-cache-open"), st.form("sandbox-cache", border=False):
        st.selectbox("Profile", list(PROFILES), list(PROFILES).index(now.profile), key=key("profile"))
        pools, model, engine, policies = st.tabs(["Pools", "Model", "Engine", "Policies"])
        with pools:
            for name, note in POOLS:
                number(name, getattr(now, name), *settings.RANGES[name], note)
            for label, name in SWITCHES:
                st.checkbox(label, getattr(now, name), key=key(name))
        with model:
            for name, note in MODEL:
                number(name, getattr(now, name), *settings.RANGES[name], note)
            st.number_input("seed", 0, MAX_SEED, min(sandbox.scenario.seed, MAX_SEED), key=key("seed"))
            _windows(now, key("window"), key("groups"))
        with engine:
            for name, (low, high) in settings.SCHEDULER_RANGES.items():
                number(name, getattr(now.scheduler, name), low, high)
            watermark = min(now.scheduler.watermark, 0.99)
            st.number_input("watermark, part of the pool", 0.0, 0.99, watermark, step=0.05, key=key("watermark"))
            for name, (low, high) in settings.SPECULATION_RANGES.items():
                number(name, getattr(now.speculation, name), low, high)
            cut, why = now.speculation.min_confidence, HELP["min_confidence"]
            st.number_input("min_confidence (0 to 1)", 0.0, 1.0, cut, step=0.05, key=key("min_confidence"), help=why)
        with policies:
            _policies(now, key)
        st.form_submit_button("Apply", on_click=apply, width="stretch", help="Plays the same operations on this cache.")


def _windows(now: CacheConfig, window: str, groups: str) -> None:
    _, most = settings.WINDOWS
    label, why = f"window, tokens (0 for all, to {most:,})", "What a layer sees: so many tokens, the newest included."
    st.number_input(label, 0, most, now.window or 0, key=window, help=why)
    st.text_input(
        "groups, a window each",
        ", ".join(ALL_TOKENS if window is None else str(window) for window in now.groups),
        key=groups,
        placeholder=f"{ALL_TOKENS}, 8",
        help="Layer l is of group l modulo their number, and each group has block tables of its own. "
        f"“{ALL_TOKENS}” is full attention. A profile with a null block is needed.",
    )


def _policies(now: CacheConfig, key: Callable[[str], str]) -> None:
    """A choice for each kind of policy, explained by the docstrings of its functions."""
    chosen = dict(now.policies)
    for kind, functions in POLICIES.items():
        names = [OF_PROFILE, *(function.__name__ for function in functions)]
        why = "  \n".join(f"`{f.__name__}`: {(f.__doc__ or '').splitlines()[0]}" for f in functions)
        st.selectbox(kind, names, names.index(chosen.get(kind, OF_PROFILE)), key=key(kind), help=why)


def windows_from_text(text: str) -> list[int | None]:
    """Read the windows of the groups. Raises ScenarioError. Example: "none, 8" -> [None, 8]."""
    words = [word.strip().lower() for word in text.split(",")] if text.strip() else []
    if not all(re.fullmatch(rf"{ALL_TOKENS}|\d{{1,9}}", word) for word in words):
        shown, example = json_values.show(text.strip()), f"“{ALL_TOKENS}, 8”"
        raise ScenarioError(f"the groups are {shown}; they must be windows with commas between, like {example}")
    return [None if word == ALL_TOKENS else int(word) for word in words]
