"""Sequences of the learner's own: type, press, undo; every step is computed and checked as in a lesson."""

import json
import string
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import partial
from typing import Any

import streamlit as st

from pagedviz import scenario as scenarios
from pagedviz.engine.policies import POLICIES, PROFILES
from pagedviz.engine.snapshot import Snapshot
from pagedviz.run_view import RunView
from pagedviz.runtime.client import ComputedRun
from pagedviz.scenario import (
    Abort,
    Add,
    Append,
    EngineSteps,
    Fork,
    Free,
    Generate,
    Op,
    Reload,
    ResetPrefixCache,
    Spill,
    Submit,
)
from pagedviz.trace import Check, Claims
from pagedviz.ui import address, compute, run_panel
from pagedviz.ui.address import plain
from pagedviz.ui.own_run import OwnRun, own_run

KEY = "sequences"
MAX_SEED = 2**53 - 1  # a browser counts no further
RESET = "Forgets what may be hit, as after new weights. Free every sequence first."
PROFILE_S_OWN = "as the profile"
MAX_TEXT = 60_000  # characters one text field takes


def show() -> None:
    own_run().write_address()  # the learner may come back from elsewhere
    run_panel.live(KEY, _body)


def _body() -> ComputedRun:
    own = own_run()
    view, run = compute.follow(KEY, own.scenario)
    start = address.start_step(own.name, own.num_steps, own.num_steps)
    step = min(run_panel.step_of(own.name, start), len(view.steps))
    controls, shown = st.columns([1, 3.6], gap="medium")
    # A dry run stands in for the model's words; once they are known, what they led to counts.
    state = view.snapshot(len(view.steps)) if run.done and not run.failed else own.state()
    with controls:
        _controls(own, view, run, state)
    with shown:
        run_panel.show_stage(KEY, own.name, view, run, start)
        with st.container():
            _progress(own, run)
        run_panel.show_charts(KEY, view, run, step)
    return run


def _controls(own: OwnRun, view: RunView, run: ComputedRun, state: Snapshot) -> None:
    st.subheader("Your sequences", anchor=False)
    # What comes and goes has a place of its own: without it everything below would move, and stand twice for a moment.
    with st.container():
        if own.message:
            st.warning(plain(own.message))
        if own.claims:
            _compare(own.claims, view, run)
    unfinished = (*state.running, *state.swapped, *state.waiting)
    names = [seq_id for seq_id in state.tokens if seq_id not in unfinished]
    _add(own)
    with st.container():
        _serve(own, unfinished)
    with st.container():
        if names:
            _work_on(own, names)
    with st.container():
        if state.cached:
            reset = partial(_do, own, ResetPrefixCache)
            st.button("Reset prefix cache", on_click=reset, key="own-reset", width="stretch", help=RESET)
    undo, export = st.columns(2)
    undo.button("Undo", on_click=own.undo, disabled=not own.undone, key="own-undo", width="stretch")
    with export:
        run_panel.show_downloads(KEY, view, run, "sequences")
    _cache(own)
    _as_text(own)
    _upload(own)
    if address.encode(own.scenario):
        st.caption("The address line holds this run: copy it, and it opens the same elsewhere.")


# Whatever changes the run is a callback: it has happened before the page is drawn, whichever part of it is drawn.


def _add(own: OwnRun) -> None:
    def add() -> None:
        text = st.session_state["own-prompt"]
        _do(own, lambda: Add(_free_name(own), scenarios.tokens_from_text(text, "the prompt")), "own-prompt")

    with st.form("own-add"):
        st.text_input("New sequence", placeholder="Type its prompt", key="own-prompt", max_chars=MAX_TEXT)
        st.form_submit_button("Add", on_click=add, width="stretch")


def _work_on(own: OwnRun, names: list[str]) -> None:
    chosen = st.radio("Sequence", names, format_func=plain, horizontal=True, key="own-chosen") or names[0]

    def append() -> None:
        text = st.session_state["own-more"]
        _do(own, lambda: Append(chosen, scenarios.tokens_from_text(text, "the text")), "own-more")

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


def _serve(own: OwnRun, unfinished: tuple[str, ...]) -> None:
    """Requests, which the scheduler serves step by step."""

    def submit() -> None:
        given = {name: st.session_state[f"own-request-{name}"] for name in ("prompt", "tokens", "priority", "salt")}

        def make() -> Op:
            tokens = scenarios.tokens_from_text(given["prompt"], "the prompt")
            salt = given["salt"].strip() or None
            return Submit(_free_name(own), tokens, given["tokens"], priority=given["priority"], salt=salt)

        _do(own, make, "own-request-prompt")

    opened = bool(unfinished) or any(isinstance(op, Submit) for op in own.scenario.ops)
    with st.expander("Requests", expanded=opened, key="own-requests-open"):
        with st.form("own-submit"):
            st.text_input("New request", placeholder="Type its prompt", key="own-request-prompt", max_chars=MAX_TEXT)
            left, right = st.columns(2)
            left.number_input("max_tokens", 1, scenarios.MAX_TOKENS, 4, key="own-request-tokens")
            most = scenarios.MAX_PRIORITY
            right.number_input("priority", -most, most, 0, key="own-request-priority", help="Smaller goes first.")
            st.text_input(
                "salt",
                key="own-request-salt",
                max_chars=scenarios.MAX_NAME_CHARACTERS,
                help="Cached prefixes are shared between requests of one salt only.",
            )
            st.form_submit_button("Submit", on_click=submit, width="stretch")
        if unfinished:
            one, ten = st.columns(2)
            for column, num_steps in ((one, 1), (ten, 10)):
                label = f"{num_steps} engine step{'s' * (num_steps > 1)}"
                run = partial(_do, own, partial(EngineSteps, num_steps))
                column.button(label, on_click=run, key=f"own-step-{num_steps}", width="stretch")
            chosen = (
                st.radio("Request", unfinished, format_func=plain, horizontal=True, key="own-request") or unfinished[0]
            )
            st.button("Abort", on_click=partial(_do, own, partial(Abort, chosen)), key="own-abort", width="stretch")


def _do(own: OwnRun, make: Callable[[], Op], field: str = "") -> None:
    """Do an operation; then the stage plays to it, and the field that it was typed into is empty again."""
    if own.do(make):
        run_panel.go(own.name, own.num_steps)
        if field:
            st.session_state[field] = ""


def _free_name(own: OwnRun) -> str:
    """The first name that this run has not used: A to Z, then A1 and so on."""
    used = {op.seq_id for op in own.scenario.ops if isinstance(op, Add | Fork | Submit)}
    names = (letter + suffix for suffix in ("", *map(str, range(1, 99))) for letter in string.ascii_uppercase)
    return next(name for name in names if name not in used)


def _cache(own: OwnRun) -> None:
    now = asdict(own.scenario.cache)
    version = _version(own)
    numbers = (
        ("block_size", ", tokens"),
        ("num_blocks", ", device"),
        ("host_blocks", ""),
        ("num_layers", ""),
        ("num_heads", ", query"),
        ("num_kv_heads", ""),
        ("head_dim", ", even"),
    )
    switches = (
        ("Shuffle the free queue", "scatter"),
        ("Spill by itself when full", "auto_spill"),
        ("Cache prefixes", "prefix_caching"),
        ("Allow fork in a profile without", "fork"),
    )

    def key(name: str) -> str:
        return f"own-{name}-{version}"

    def given(names: Iterable[str]) -> dict[str, Any]:
        return {name: st.session_state[key(name)] for name in names}

    def apply() -> None:
        policies = {kind: name for kind, name in given(POLICIES).items() if name != PROFILE_S_OWN}
        cache = given(["profile", *(name for name, _ in numbers), *(name for _, name in switches)])
        own.set_cache({**cache, "scheduler": given(now["scheduler"]), "policies": policies}, given(["seed"])["seed"])

    with st.expander("Cache, model and policies", key="own-cache-open"), st.form("own-cache"):
        st.selectbox("Profile", list(PROFILES), list(PROFILES).index(now["profile"]), key=key("profile"))
        for name, note in numbers:
            low, high = scenarios.RANGES[name]
            label = f"{name}{note} ({low:,} to {high:,})"
            st.number_input(label, low, high, now[name], step=2 if name == "head_dim" else 1, key=key(name))
        st.number_input("seed", 0, MAX_SEED, min(own.scenario.seed, MAX_SEED), key=key("seed"))
        for label, name in switches:
            st.checkbox(label, now[name], key=key(name))
        st.caption("A step of the engine")
        for name, (low, high) in scenarios.SCHEDULER_RANGES.items():
            st.number_input(f"{name} ({low:,} to {high:,})", low, high, now["scheduler"][name], key=key(name))
        watermark = now["scheduler"]["watermark"]
        st.number_input("watermark, part of the pool", 0.0, 0.99, min(watermark, 0.99), step=0.05, key=key("watermark"))
        st.caption("Policies, each one function")
        chosen = dict(now["policies"])
        for kind, functions in POLICIES.items():
            names = [PROFILE_S_OWN, *(function.__name__ for function in functions)]
            why = "  \n".join(f"`{f.__name__}`: {(f.__doc__ or '').splitlines()[0]}" for f in functions)
            at = names.index(chosen.get(kind, PROFILE_S_OWN))
            st.selectbox(kind, names, at, key=key(kind), help=why)
        st.form_submit_button("Apply", on_click=apply, width="stretch", help="Plays the same operations on this cache.")


def _as_text(own: OwnRun) -> None:
    key = f"own-text-{_version(own)}"
    with st.expander("Scenario as text", key="own-text-open"), st.form("own-text"):
        st.text_area("Scenario", own.scenario.to_text(), height=260, label_visibility="collapsed", key=key)
        st.form_submit_button("Run this text", on_click=lambda: own.load(st.session_state[key]), width="stretch")


def _version(own: OwnRun) -> int:
    """Changes with the scenario, so that the text field shows the one at hand; a refused text stays to be mended."""
    # Not of the scenario itself: to Python, −1 and −2 have one hash.
    return hash(own.scenario.to_text())


def _upload(own: OwnRun) -> None:
    def opened() -> None:
        given = st.session_state["own-upload"]
        if given is not None:
            own.load(given.getvalue())

    with st.expander("Open a file", key="own-file-open"):
        st.file_uploader("A scenario or a trace, JSON", key="own-upload", on_change=opened)
        st.caption(
            f"A run has up to {scenarios.MAX_OPS:,} operations, {scenarios.MAX_TOKENS:,} tokens and "
            f"{scenarios.MAX_SEQUENCES} sequences; its pools up to {scenarios.MAX_CACHE_BYTES // 2**20} MiB of K and V."
        )


def _compare(claims: Claims, view: RunView, run: ComputedRun) -> None:
    """An uploaded trace is a claim: how much of it was computed here again, and came out the same."""
    said, same = compared(claims, view, run)
    show = st.info if same is None else st.success if same else st.warning
    show(said)


def compared(claims: Claims, view: RunView, run: ComputedRun) -> tuple[str, bool | None]:
    """A sentence or two, and whether all is as the trace says; None while it is still being computed."""
    checks = view.checks(run)
    computed = min(max(0, len(run.checks) - 1), len(view.steps))
    same = sum(
        _as_computed(claim, {**step.to_json(), "snapshot": view.snapshot(k).to_json()}, checks[k])
        for k, (claim, step) in enumerate(zip(claims.steps[:computed], view.steps, strict=False), 1)
    )
    said = (
        f"The trace has {len(claims.steps)} steps, its run {len(view.steps)}; {computed} were computed here again, and "
        f"{same} came out the same."
    )
    if not run.done or run.failed:
        return said, None
    ok = all(check is not None and check.ok for check in checks)
    claimed = plain(scenarios.show(claims.ok))
    said += f" Of the whole it says “ok” is {claimed}, and here it is {scenarios.show(ok)}."
    return said, claims.ok is ok and same == len(claims.steps) == len(view.steps)


def _as_computed(claim: Any, step: dict[str, Any], check: Check | None) -> bool:
    """A recorded step says what was computed here: event, sentence, state, verdict. Times and digits may differ."""
    if not isinstance(claim, dict) or not isinstance(claim.get("check"), dict) or check is None:
        return False
    told = {name: claim.get(name) for name in step}
    return bool(
        json.dumps(told, sort_keys=True) == json.dumps(step, sort_keys=True) and claim["check"].get("ok") == check.ok
    )


def _progress(own: OwnRun, run: ComputedRun) -> None:
    """Long work says how far it is, and can be stopped."""
    checked, steps = max(0, len(run.checks) - 1), own.num_steps  # those of tokens still to be generated too
    if run.failed:
        st.button("Check the rest", on_click=partial(compute.again, KEY, own.scenario), key="own-again")
    elif not run.done and steps - checked > 5:
        bar, stop = st.columns([5, 1])
        bar.progress(min(1.0, checked / steps), f"{checked} of {steps} steps checked")
        stop.button("Stop", on_click=partial(compute.stop, KEY), key="own-stop")
