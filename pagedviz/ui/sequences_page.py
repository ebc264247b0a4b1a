"""Sequences of the learner's own: type, press, undo; every step is computed and checked as in a lesson."""

import string
from dataclasses import asdict
from functools import partial
from typing import Any

import streamlit as st

from pagedviz import scenario as scenarios
from pagedviz.engine.policies import PROFILES
from pagedviz.run_view import RunView
from pagedviz.runtime.client import ComputedRun
from pagedviz.scenario import Add, Append, Fork, Free, Generate, Reload, Spill
from pagedviz.ui import address, compute, run_panel
from pagedviz.ui.own_run import OwnRun, own_run

KEY = "sequences"
MAX_TEXT = 60_000  # characters one text field takes


def show() -> None:
    own_run()
    run_panel.live(KEY, _body)


def _body() -> ComputedRun:
    own = own_run()
    view, run = compute.follow(KEY, own.scenario)
    start = address.start_step(own.name, len(view.steps), len(view.steps))
    step = min(run_panel.step_of(own.name, start), len(view.steps))
    controls, shown = st.columns([1, 3.6], gap="medium")
    with controls:
        _controls(own, view, run)
    with shown:
        run_panel.show_stage(own.name, view, run, start)
        _progress(own, view, run)
        run_panel.show_charts(KEY, view, run, step)
    return run


def _controls(own: OwnRun, view: RunView, run: ComputedRun) -> None:
    st.subheader("Your sequences", anchor=False)
    if own.message:
        st.warning(own.message)
    if own.recorded:
        _compare(own, view, run)
    state = own.state()
    names = list(state.tokens)
    _add(own, names)
    if names:
        _work_on(own, names)
    undo, export = st.columns(2)
    undo.button("Undo", on_click=own.undo, disabled=not own.undone, key="own-undo", width="stretch")
    with export:
        run_panel.show_downloads(KEY, view, run, "sequences")
    _cache(own)
    _as_text(own)
    _upload(own)
    if address.encode(own.scenario):
        st.caption("The address line holds this run: copy it, and it opens the same elsewhere.")


def _add(own: OwnRun, names: list[str]) -> None:
    with st.form("own-add", clear_on_submit=True):
        text = st.text_input("New sequence", placeholder="Type its prompt", key="own-prompt", max_chars=MAX_TEXT)
        if st.form_submit_button("Add", width="stretch"):
            _do(own, lambda: Add(_free_name(own), scenarios.tokens_from_text(text, "the prompt")))


def _work_on(own: OwnRun, names: list[str]) -> None:
    chosen = st.radio("Sequence", names, horizontal=True, key="own-chosen") or names[0]
    with st.form("own-append", clear_on_submit=True):
        text = st.text_input(
            "More words", placeholder="Type, or leave it to the model", key="own-more", max_chars=MAX_TEXT
        )
        append, generate = st.columns([1, 1.15])
        if append.form_submit_button("Append", width="stretch"):
            _do(own, lambda: Append(chosen, scenarios.tokens_from_text(text, "the text")))
        if generate.form_submit_button("Generate 1", width="stretch", help="The toy model's own next token, greedy."):
            _do(own, lambda: Generate(chosen, 1))
    left, right = st.columns(2)
    for column, label, make in (
        (left, "Fork", lambda: Fork(chosen, _free_name(own))),
        (right, "Free", lambda: Free(chosen)),
        (left, "Spill", lambda: Spill(chosen)),
        (right, "Reload", lambda: Reload(chosen)),
    ):
        if column.button(label, key=f"own-{label}", width="stretch"):
            _do(own, make)


def _do(own: OwnRun, make: Any) -> None:
    before = len(own.scenario.ops)
    own.do(make)
    if len(own.scenario.ops) > before:
        run_panel.go_to_end(own.name)
    st.rerun(scope="fragment")


def _free_name(own: OwnRun) -> str:
    """The first name that this run has not used: A to Z, then A1 and so on."""
    used = {op.seq_id for op in own.scenario.ops if isinstance(op, Add | Fork)}
    names = (letter + suffix for suffix in ("", *map(str, range(1, 99))) for letter in string.ascii_uppercase)
    return next(name for name in names if name not in used)


def _cache(own: OwnRun) -> None:
    cache = own.scenario.cache
    with st.expander("Cache and model", key="own-cache-open"), st.form("own-cache"):
        profile = st.selectbox("Profile", list(PROFILES), list(PROFILES).index(cache.profile), help="Whose rules hold.")
        numbers = {
            "block_size": st.number_input("block_size, tokens", 1, 256, cache.block_size),
            "num_blocks": st.number_input("num_blocks, device", 1, 8192, cache.num_blocks),
            "host_blocks": st.number_input("host_blocks", 0, 8192, cache.host_blocks),
            "num_layers": st.number_input("num_layers", 1, 4, cache.num_layers),
            "num_heads": st.number_input("num_heads, query", 1, 8, cache.num_heads),
            "num_kv_heads": st.number_input("num_kv_heads", 1, 8, cache.num_kv_heads),
            "head_dim": st.number_input("head_dim, even", 2, 128, cache.head_dim, step=2),
        }
        seed = st.number_input("seed", 0, 2**31, own.scenario.seed)
        switches = {
            "scatter": st.checkbox("Shuffle the free queue", cache.scatter),
            "auto_spill": st.checkbox("Spill by itself when full", cache.auto_spill),
            "fork": st.checkbox("Allow fork in a profile without", cache.fork),
        }
        if st.form_submit_button("Apply", width="stretch", help="Plays the same operations on this cache."):
            own.set_cache({**asdict(cache), "profile": profile, **numbers, **switches}, int(seed))
            st.rerun(scope="fragment")


def _as_text(own: OwnRun) -> None:
    with st.expander("Scenario as text", key="own-text-open"), st.form("own-text"):
        text = st.text_area(
            "Scenario",
            own.scenario.to_text(),
            height=260,
            label_visibility="collapsed",
            key=f"own-text-{_version(own)}",
        )
        if st.form_submit_button("Run this text", width="stretch"):
            own.load(text)
            st.rerun(scope="fragment")


def _version(own: OwnRun) -> int:
    """Changes with the scenario, so that the text field shows the one at hand; a refused text stays to be mended."""
    return hash(own.scenario)


def _upload(own: OwnRun) -> None:
    with st.expander("Open a file", key="own-file-open"):
        given = st.file_uploader("A scenario or a trace, JSON", key="own-upload")
        if given is not None and st.session_state.get("own-opened") != given.file_id:
            st.session_state["own-opened"] = given.file_id
            own.load(given.getvalue())
            st.rerun(scope="fragment")


def _compare(own: OwnRun, view: RunView, run: ComputedRun) -> None:
    """An uploaded trace is a claim: how much of it was computed here again, and came out the same."""
    computed = min(len(run.checks) - 1, len(view.steps))
    recorded = own.recorded[:computed]
    same = sum(
        isinstance(claim, dict) and claim.get("event") == step.event.to_json()
        for claim, step in zip(recorded, view.steps, strict=False)
    )
    told = (
        f"The trace has {len(own.recorded)} steps; {computed} were computed here again, and {same} came out the same."
    )
    (st.success if same == len(own.recorded) == len(view.steps) else st.info)(told)


def _progress(own: OwnRun, view: RunView, run: ComputedRun) -> None:
    """Long work says how far it is, and can be stopped."""
    checked = max(0, len(run.checks) - 1)
    if run.failed:
        if st.button("Check the rest", key="own-again"):
            compute.again(KEY, own.scenario)
            st.rerun()
    elif not run.done and len(view.steps) - checked > 5:
        bar, stop = st.columns([5, 1])
        bar.progress(min(1.0, checked / max(1, len(view.steps))), f"{checked} of {len(view.steps)} steps checked")
        stop.button("Stop", on_click=partial(compute.client().stop, run), key="own-stop")
