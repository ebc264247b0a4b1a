"""What the learner can do to sequences, requests and the host tier: a field or a button for each operation.

Whatever changes the run is a callback: it has happened before the page is drawn, whichever part of it is drawn. What
does not apply is not there.
"""

import string
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType, UnionType
from typing import Any

import streamlit as st

from pagedviz.engine.log.host_snapshot import Transfer
from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.scenario.choices import profile_of
from pagedviz.scenario.json_values import MAX_NAME_CHARACTERS, MAX_TOKENS, tokens_from_text
from pagedviz.scenario.operations import (
    MAX_BRANCHES,
    MAX_DRAFTS,
    MAX_PRIORITY,
    Abort,
    Add,
    Append,
    Draft,
    EndTransfer,
    EngineSteps,
    Fork,
    Free,
    Generate,
    Load,
    Op,
    Reload,
    ResetPrefixCache,
    Spill,
    Store,
    Submit,
    Verify,
)
from pagedviz.ui import cache_form, run_panel
from pagedviz.ui.elements.markdown import plain
from pagedviz.ui.own_run import OwnRun

RESET = "Forgets what may be hit, as after new weights. Free every sequence first."
MAX_TEXT = 60_000  # characters one text field takes


def show(own: OwnRun, state: Snapshot) -> None:
    # What comes and goes has a place of its own: without it everything below would move, and stand twice for a moment.
    unfinished = (*state.running, *state.swapped, *state.waiting)
    served = {seq_id for name in unfinished for seq_id in (name, *state.requests[name].outputs)}
    names = [seq_id for seq_id in state.tokens if seq_id not in served]
    _add(own)
    with st.container():
        _serve(own, unfinished)
    with st.container():
        chosen = _work_on(own, names) if names else None
    with st.container():
        if chosen is not None:
            _draft(own, chosen, state)
    with st.container():
        _host_tier(own, chosen, state)
    with st.container():
        if state.cached:
            reset = partial(_do, own, ResetPrefixCache)
            st.button("Reset prefix cache", on_click=reset, key="own-reset", width="stretch", help=RESET)


def _add(own: OwnRun) -> None:
    def add() -> None:
        text = st.session_state["own-prompt"]
        _do(own, lambda: Add(_free_name(own), tokens_from_text(text, "the prompt")), {"own-prompt": ""})

    with st.form("own-add"):
        st.text_input("New sequence", placeholder="Type its prompt", key="own-prompt", max_chars=MAX_TEXT)
        st.form_submit_button("Add", on_click=add, width="stretch")


def _work_on(own: OwnRun, names: list[str]) -> str:
    chosen = st.radio("Sequence", names, format_func=plain, horizontal=True, key="own-chosen") or names[0]

    def append() -> None:
        text = st.session_state["own-more"]
        _do(own, lambda: Append(chosen, tokens_from_text(text, "the text")), {"own-more": ""})

    with st.form("own-append"):
        st.text_input("More words", placeholder="Type what comes next", key="own-more", max_chars=MAX_TEXT)
        st.form_submit_button("Append", on_click=append, width="stretch")
    st.button(
        "Generate 1",
        on_click=partial(_do, own, lambda: Generate(chosen, 1)),
        key="own-generate",
        width="stretch",
        help="The toy model's own next token, greedy.",
    )
    left, right = st.columns(2)
    for column, label, make in (
        (left, "Fork", lambda: Fork(chosen, _free_name(own))),
        (right, "Free", lambda: Free(chosen)),
        (left, "Spill", lambda: Spill(chosen)),
        (right, "Reload", lambda: Reload(chosen)),
    ):
        column.button(label, on_click=partial(_do, own, make), key=f"own-{label}", width="stretch")
    return chosen


def _draft(own: OwnRun, chosen: str, state: Snapshot) -> None:
    """Tokens that are guessed for a sequence, and the launch that verifies them."""
    drafts = state.drafted.get(chosen)

    def draft() -> None:
        text, number = st.session_state["own-drafts"], st.session_state["own-num-drafts"]
        cut = st.session_state["own-confidence"]

        def make() -> Op:
            if not text.strip():
                return Draft(chosen, number, min_confidence=cut)
            tokens = tokens_from_text(text, "the text")
            return Draft(chosen, len(tokens), tokens)

        _do(own, make, {"own-drafts": ""})

    with st.expander("Drafts", expanded=_has(own, Draft), key="own-drafts-open"):
        if drafts:
            st.caption(f"Drafted for {plain(chosen)}: “{plain(' '.join(map(str, drafts)))}”")
            verify = partial(_do, own, partial(Verify, chosen))
            st.button(
                "Verify", on_click=verify, key="own-verify", width="stretch", help="One launch computes them all."
            )
            return
        with st.form("own-draft", border=False):
            left, right = st.columns(2)
            left.number_input("drafts", 1, MAX_DRAFTS, 3, key="own-num-drafts")
            right.number_input("confidence ≥", 0.0, 1.0, 0.0, step=0.05, key="own-confidence")
            st.text_input("Or your own", placeholder="Type what may come next", key="own-drafts", max_chars=MAX_TEXT)
            st.form_submit_button(
                "Draft", on_click=draft, width="stretch", help="Guesses, behind the model's own next."
            )


def _serve(own: OwnRun, unfinished: tuple[str, ...]) -> None:
    """Requests, which the scheduler serves step by step."""
    able = profile_of(own.scenario.cache).fork
    fields = ("prompt", "tokens", "priority", "salt", *(("samples", "beams") if able else ()))

    def submit() -> None:
        given = {name: st.session_state[f"own-request-{name}"] for name in fields}
        branches = {name: given[name] for name in ("samples", "beams") if name in given}

        def make() -> Op:
            tokens = tokens_from_text(given["prompt"], "the prompt")
            salt = given["salt"].strip() or None
            return Submit(_free_name(own), tokens, given["tokens"], (), given["priority"], salt, **branches)

        # The next request is one of a single sequence again, unless somebody says otherwise.
        _do(own, make, {"own-request-prompt": "", **{f"own-request-{name}": 1 for name in branches}})

    with st.expander("Requests", expanded=bool(unfinished) or _has(own, Submit), key="own-requests-open"):
        with st.form("own-submit", border=False):
            st.text_input("New request", placeholder="Type its prompt", key="own-request-prompt", max_chars=MAX_TEXT)
            left, right = st.columns(2)
            left.number_input("max_tokens", 1, MAX_TOKENS, 4, key="own-request-tokens")
            most = MAX_PRIORITY
            right.number_input("priority", -most, most, 0, key="own-request-priority", help="Smaller goes first.")
            st.text_input(
                "salt",
                key="own-request-salt",
                max_chars=MAX_NAME_CHARACTERS,
                help="Cached prefixes are shared between requests of one salt only.",
            )
            if able:
                left, right = st.columns(2)
                why = "Answers, each drawn by itself; they share the prompt's blocks."
                left.number_input("samples", 1, MAX_BRANCHES, 1, key="own-request-samples", help=why)
                why = "The likeliest continuations, chosen anew after each token."
                right.number_input("beams", 1, MAX_BRANCHES, 1, key="own-request-beams", help=why)
            else:
                st.caption(
                    f"Samples and beams fork: a profile that can, or “Allow fork”, is under *{cache_form.TITLE}*."
                )
            st.form_submit_button("Submit", on_click=submit, width="stretch")
        if unfinished:
            for num_steps in (1, 10):
                label = f"{num_steps} engine step{'s' * (num_steps > 1)}"
                run = partial(_do, own, partial(EngineSteps, num_steps))
                st.button(label, on_click=run, key=f"own-step-{num_steps}", width="stretch")
            chosen = (
                st.radio("Request", unfinished, format_func=plain, horizontal=True, key="own-request") or unfinished[0]
            )
            st.button("Abort", on_click=partial(_do, own, partial(Abort, chosen)), key="own-abort", width="stretch")


def _host_tier(own: OwnRun, chosen: str | None, state: Snapshot) -> None:
    """The host as a second cache, and what is on its way there or back."""
    if state.tier is None:
        st.caption(f"A host tier keeps copies of cached blocks: give it *host_chunks* under *{cache_form.TITLE}*.")
        return

    def load() -> None:
        text = st.session_state["own-load"]
        _do(own, lambda: Load(tokens_from_text(text, "the prompt")), {"own-load": ""})

    transfers = state.tier.transfers.values()
    opened = bool(transfers) or _has(own, Store | Load)
    with st.expander("Host tier", expanded=opened, key="own-tier-open"):
        for transfer in transfers:
            _in_transfer(own, transfer)
        if chosen is not None:
            store = partial(_do, own, partial(Store, chosen))
            label = f"Store {plain(chosen)}"
            st.button(
                label, on_click=store, key="own-store", width="stretch", help="Its full cached blocks, as copies."
            )
        with st.form("own-load-form", border=False):
            st.text_input("Load what the host has of", placeholder="Type a prompt", key="own-load", max_chars=MAX_TEXT)
            st.form_submit_button("Load", on_click=load, width="stretch")


def _in_transfer(own: OwnRun, transfer: Transfer) -> None:
    number, blocks = transfer.transfer_id, len(transfer.chunks)
    way = "to the host" if transfer.kind == "store" else "from the host"
    st.caption(f"Transfer {number}: {blocks} block{'s' * (blocks > 1)} {way}")
    with st.container(horizontal=True, gap="small"):
        for how in ("finish", "fail", "cancel"):
            end = partial(_do, own, partial(EndTransfer, number, how))
            st.button(how.capitalize(), on_click=end, key=f"own-{how}-{number}")


def _do(own: OwnRun, make: Callable[[], Op], cleared: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Do an operation; then the stage plays to it, and the fields that are to be `cleared` hold these values again."""
    if own.do(make):
        run_panel.go(own.name, own.num_steps)
        for field, value in cleared.items():
            st.session_state[field] = value


def _has(own: OwnRun, kind: type[Op] | UnionType) -> bool:
    return any(isinstance(op, kind) for op in own.scenario.ops)


def _free_name(own: OwnRun) -> str:
    """The first name that this run has not used: A to Z, then A1 and so on."""
    used = {op.seq_id for op in own.scenario.ops if isinstance(op, Add | Fork | Submit)}
    names = (letter + suffix for suffix in ("", *map(str, range(1, 99))) for letter in string.ascii_uppercase)
    return next(name for name in names if name not in used)
