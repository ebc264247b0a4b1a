"""What the learner can do to sequences, requests and the host tier: a field or a button for each operation.

Every change of the run is a callback, so it has happened before any part of the page is drawn. A control that does not
apply is not shown.
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
from pagedviz.ui import run_panel
from pagedviz.ui.elements.markdown import plain
from pagedviz.ui.sandbox import settings_form
from pagedviz.ui.sandbox.sandbox import Sandbox

RESET = "Forgets what may be hit, as after new weights. Free every sequence first."
MAX_TEXT = 60_000  # characters that one text field takes


def show(sandbox: Sandbox, state: Snapshot) -> None:
    # A part that comes and goes has a container: without one, all below it would move, and stand twice for a moment.
    unfinished = (*state.running, *state.swapped, *state.waiting)
    served = {seq_id for name in unfinished for seq_id in (name, *state.requests[name].outputs)}
    names = [seq_id for seq_id in state.tokens if seq_id not in served]
    _add(sandbox)
    with st.container():
        _serve(sandbox, unfinished)
    with st.container():
        chosen = _work_on(sandbox, names) if names else None
    with st.container():
        if chosen is not None:
            _draft(sandbox, chosen, state)
    with st.container():
        _host_tier(sandbox, chosen, state)
    with st.container():
        if state.cached:
            reset = partial(_do, sandbox, ResetPrefixCache)
            st.button("Reset prefix cache", on_click=reset, key="sandbox-reset", width="stretch", help=RESET)


def _add(sandbox: Sandbox) -> None:
    def add() -> None:
        text = st.session_state["sandbox-prompt"]
        _do(sandbox, lambda: Add(_free_name(sandbox), tokens_from_text(text, "the prompt")), {"sandbox-prompt": ""})

    with st.form("sandbox-add"):
        st.text_input("New sequence", placeholder="Type its prompt", key="sandbox-prompt", max_chars=MAX_TEXT)
        st.form_submit_button("Add", on_click=add, width="stretch")


def _work_on(sandbox: Sandbox, names: list[str]) -> str:
    """The sequence that the learner chooses of `names`, with the operations on it."""
    chosen = st.radio("Sequence", names, format_func=plain, horizontal=True, key="sandbox-chosen") or names[0]

    def append() -> None:
        text = st.session_state["sandbox-more"]
        _do(sandbox, lambda: Append(chosen, tokens_from_text(text, "the text")), {"sandbox-more": ""})

    with st.form("sandbox-append"):
        st.text_input("More words", placeholder="Type what comes next", key="sandbox-more", max_chars=MAX_TEXT)
        st.form_submit_button("Append", on_click=append, width="stretch")
    st.button(
        "Generate 1",
        on_click=partial(_do, sandbox, lambda: Generate(chosen, 1)),
        key="sandbox-generate",
        width="stretch",
        help="The toy model's own next token, greedy.",
    )
    left, right = st.columns(2)
    for column, label, make in (
        (left, "Fork", lambda: Fork(chosen, _free_name(sandbox))),
        (right, "Free", lambda: Free(chosen)),
        (left, "Spill", lambda: Spill(chosen)),
        (right, "Reload", lambda: Reload(chosen)),
    ):
        column.button(label, on_click=partial(_do, sandbox, make), key=f"sandbox-{label}", width="stretch")
    return chosen


def _draft(sandbox: Sandbox, chosen: str, state: Snapshot) -> None:
    """Tokens that are guessed for a sequence, and the launch that verifies them."""
    drafts = state.drafted.get(chosen)

    def draft() -> None:
        text, number = st.session_state["sandbox-drafts"], st.session_state["sandbox-num-drafts"]
        cut = st.session_state["sandbox-confidence"]

        def make() -> Op:
            if not text.strip():
                return Draft(chosen, number, min_confidence=cut)
            tokens = tokens_from_text(text, "the text")
            return Draft(chosen, len(tokens), tokens)

        _do(sandbox, make, {"sandbox-drafts": ""})

    with st.expander("Drafts", expanded=_has(sandbox, Draft), key="sandbox-drafts-open"):
        if drafts:
            st.caption(f"Drafted for {plain(chosen)}: “{plain(' '.join(map(str, drafts)))}”")
            verify = partial(_do, sandbox, partial(Verify, chosen))
            st.button(
                "Verify", on_click=verify, key="sandbox-verify", width="stretch", help="One launch computes them all."
            )
            return
        with st.form("sandbox-draft", border=False):
            left, right = st.columns(2)
            left.number_input("drafts", 1, MAX_DRAFTS, 3, key="sandbox-num-drafts")
            right.number_input("confidence ≥", 0.0, 1.0, 0.0, step=0.05, key="sandbox-confidence")
            st.text_input(
                "Or your own", placeholder="Type what may come next", key="sandbox-drafts", max_chars=MAX_TEXT
            )
            st.form_submit_button(
                "Draft", on_click=draft, width="stretch", help="Guesses, behind the model's own next."
            )


def _serve(sandbox: Sandbox, unfinished: tuple[str, ...]) -> None:
    """Requests, which the scheduler serves step by step."""
    can_fork = profile_of(sandbox.scenario.cache).fork
    fields = ("prompt", "tokens", "priority", "salt", *(("samples", "beams") if can_fork else ()))

    def submit() -> None:
        given = {name: st.session_state[f"sandbox-request-{name}"] for name in fields}
        branches = {name: given[name] for name in ("samples", "beams") if name in given}

        def make() -> Op:
            tokens = tokens_from_text(given["prompt"], "the prompt")
            salt = given["salt"].strip() or None
            return Submit(_free_name(sandbox), tokens, given["tokens"], (), given["priority"], salt, **branches)

        # The fields of the next request begin again with one sample and one beam.
        _do(sandbox, make, {"sandbox-request-prompt": "", **{f"sandbox-request-{name}": 1 for name in branches}})

    with st.expander("Requests", expanded=bool(unfinished) or _has(sandbox, Submit), key="sandbox-requests-open"):
        with st.form("sandbox-submit", border=False):
            st.text_input(
                "New request", placeholder="Type its prompt", key="sandbox-request-prompt", max_chars=MAX_TEXT
            )
            left, right = st.columns(2)
            left.number_input("max_tokens", 1, MAX_TOKENS, 4, key="sandbox-request-tokens")
            most = MAX_PRIORITY
            right.number_input("priority", -most, most, 0, key="sandbox-request-priority", help="Smaller goes first.")
            st.text_input(
                "salt",
                key="sandbox-request-salt",
                max_chars=MAX_NAME_CHARACTERS,
                help="Cached prefixes are shared between requests of one salt only.",
            )
            if can_fork:
                left, right = st.columns(2)
                why = "Answers, each drawn by itself; they share the prompt's blocks."
                left.number_input("samples", 1, MAX_BRANCHES, 1, key="sandbox-request-samples", help=why)
                why = "The likeliest continuations, chosen anew after each token."
                right.number_input("beams", 1, MAX_BRANCHES, 1, key="sandbox-request-beams", help=why)
            else:
                st.caption(
                    f"Samples and beams fork: a profile that can, or “Allow fork”, is under *{settings_form.TITLE}*."
                )
            st.form_submit_button("Submit", on_click=submit, width="stretch")
        if unfinished:
            for num_steps in (1, 10):
                label = f"{num_steps} engine step{'s' * (num_steps > 1)}"
                run = partial(_do, sandbox, partial(EngineSteps, num_steps))
                st.button(label, on_click=run, key=f"sandbox-step-{num_steps}", width="stretch")
            chosen = (
                st.radio("Request", unfinished, format_func=plain, horizontal=True, key="sandbox-request")
                or unfinished[0]
            )
            st.button(
                "Abort", on_click=partial(_do, sandbox, partial(Abort, chosen)), key="sandbox-abort", width="stretch"
            )


def _host_tier(sandbox: Sandbox, chosen: str | None, state: Snapshot) -> None:
    """The host as a second cache, and the transfers to it and from it."""
    if state.tier is None:
        st.caption(f"A host tier keeps copies of cached blocks: give it *host_chunks* under *{settings_form.TITLE}*.")
        return

    def load() -> None:
        text = st.session_state["sandbox-load"]
        _do(sandbox, lambda: Load(tokens_from_text(text, "the prompt")), {"sandbox-load": ""})

    transfers = state.tier.transfers.values()
    opened = bool(transfers) or _has(sandbox, Store | Load)
    with st.expander("Host tier", expanded=opened, key="sandbox-tier-open"):
        for transfer in transfers:
            _in_transfer(sandbox, transfer)
        if chosen is not None:
            store = partial(_do, sandbox, partial(Store, chosen))
            label = f"Store {plain(chosen)}"
            st.button(
                label, on_click=store, key="sandbox-store", width="stretch", help="Its full cached blocks, as copies."
            )
        with st.form("sandbox-load-form", border=False):
            st.text_input(
                "Load what the host has of", placeholder="Type a prompt", key="sandbox-load", max_chars=MAX_TEXT
            )
            st.form_submit_button("Load", on_click=load, width="stretch")


def _in_transfer(sandbox: Sandbox, transfer: Transfer) -> None:
    number, blocks = transfer.transfer_id, len(transfer.chunks)
    way = "to the host" if transfer.kind == "store" else "from the host"
    st.caption(f"Transfer {number}: {blocks} block{'s' * (blocks > 1)} {way}")
    with st.container(horizontal=True, gap="small"):
        for how in ("finish", "fail", "cancel"):
            end = partial(_do, sandbox, partial(EndTransfer, number, how))
            st.button(how.capitalize(), on_click=end, key=f"sandbox-{how}-{number}")


def _do(sandbox: Sandbox, make: Callable[[], Op], cleared: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Do an operation. If it is not refused, the stage plays to it, and the fields in `cleared` get these values."""
    if sandbox.do(make):
        run_panel.go(sandbox.name, sandbox.num_steps)
        for field, value in cleared.items():
            st.session_state[field] = value


def _has(sandbox: Sandbox, kind: type[Op] | UnionType) -> bool:
    return any(isinstance(op, kind) for op in sandbox.scenario.ops)


def _free_name(sandbox: Sandbox) -> str:
    """The first name that this run has not used: A to Z, then A1 and so on."""
    used = {op.seq_id for op in sandbox.scenario.ops if isinstance(op, Add | Fork | Submit)}
    names = (letter + suffix for suffix in ("", *map(str, range(1, 99))) for letter in string.ascii_uppercase)
    return next(name for name in names if name not in used)
