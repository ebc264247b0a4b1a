"""The learner's own sequences: the sandbox on the screen. Every step is computed and checked as in a lesson."""

import json
from functools import partial
from typing import Any

import streamlit as st

from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.run import trace
from pagedviz.run.trace import Check, Claims
from pagedviz.run_view import RunView
from pagedviz.runtime.client import ComputedRun
from pagedviz.scenario import json_values
from pagedviz.scenario import scenario as scenarios
from pagedviz.scenario.settings import MAX_CACHE_BYTES
from pagedviz.ui import address, compute, run_panel
from pagedviz.ui.elements.markdown import plain
from pagedviz.ui.sandbox import controls, settings_form
from pagedviz.ui.sandbox.sandbox import Sandbox, session_sandbox

KEY = "sequences"


def show() -> None:
    session_sandbox().write_address()  # the learner may come back from another page
    run_panel.live(KEY, _body)


def _body() -> ComputedRun:
    sandbox = session_sandbox()
    view, run = compute.follow(KEY, sandbox.scenario)
    start = address.start_step(sandbox.name, sandbox.num_steps, sandbox.num_steps)
    step = min(run_panel.step_of(sandbox.name, start), len(view.steps))
    left, right = st.columns([1, 3.6], gap="medium")
    # A dry run gives the state until the kernels have computed the run.
    state = view.snapshot(len(view.steps)) if run.done and not run.failed else sandbox.state()
    with left:
        _controls(sandbox, view, run, state)
    with right:
        run_panel.show_stage(KEY, sandbox.name, view, run, start)
        with st.container():
            _progress(sandbox, run)
        run_panel.show_charts(KEY, view, run, step)
    return run


def _controls(sandbox: Sandbox, view: RunView, run: ComputedRun, state: Snapshot) -> None:
    st.subheader("Your sequences", anchor=False)
    # A part that comes and goes has a container: without one, all below it would move, and stand twice for a moment.
    with st.container():
        if sandbox.message:
            st.warning(plain(sandbox.message))
        if sandbox.claims:
            _compare(sandbox.claims, view, run)
    controls.show(sandbox, state)
    undo, export = st.columns(2)
    undo.button("Undo", on_click=sandbox.undo, disabled=not sandbox.before, key="sandbox-undo", width="stretch")
    with export:
        run_panel.show_downloads(KEY, view, run, "sequences")
    settings_form.show(sandbox, _version(sandbox))
    _as_text(sandbox)
    _upload(sandbox)
    if address.encode(sandbox.scenario):
        st.caption("The address line holds this run: copy it, and it opens the same elsewhere.")


def _as_text(sandbox: Sandbox) -> None:
    key = f"sandbox-text-{_version(sandbox)}"
    with st.expander("Scenario as text", key="sandbox-text-open"), st.form("sandbox-text", border=False):
        st.text_area("Scenario", sandbox.scenario.to_text(), height=260, label_visibility="collapsed", key=key)
        st.form_submit_button("Run this text", on_click=lambda: sandbox.load(st.session_state[key]), width="stretch")


def _version(sandbox: Sandbox) -> int:
    """A number that changes with the scenario, so that the fields show the new one. A refusal does not change it, so
    what was typed stays, and can be corrected."""
    # The hash of the text, not of the scenario: Python's hash of −1 is that of −2.
    return hash(sandbox.scenario.to_text())


def _upload(sandbox: Sandbox) -> None:
    def opened() -> None:
        given = st.session_state["sandbox-upload"]
        if given is not None:
            sandbox.load(given.getvalue())

    with st.expander("Open a file", key="sandbox-file-open"):
        st.file_uploader("A scenario or a trace, JSON", key="sandbox-upload", on_change=opened)
        st.caption(
            f"A run has up to {scenarios.MAX_OPS:,} operations, {json_values.MAX_TOKENS:,} tokens and "
            f"{scenarios.MAX_SEQUENCES} sequences; its pools up to {MAX_CACHE_BYTES // 2**20} MiB of K and V."
        )


def _compare(claims: Claims, view: RunView, run: ComputedRun) -> None:
    """Show how much of an uploaded trace has been computed here again, and how much of that came out the same."""
    sentence, same = compared(claims, view, run)
    show = st.info if same is None else st.success if same else st.warning
    show(sentence)


def compared(claims: Claims, view: RunView, run: ComputedRun) -> tuple[str, bool | None]:
    """A sentence or two, and whether everything is as the trace says; None until everything has been computed."""
    checks = view.checks(run)
    computed = min(max(0, len(run.checks) - 1), len(view.steps))
    same = sum(
        _as_computed(claim, {**step.to_json(), "snapshot": view.snapshot(k).to_json()}, checks[k])
        for k, (claim, step) in enumerate(zip(claims.steps[:computed], view.steps, strict=False), 1)
    )
    found = (
        f"The trace has {len(claims.steps)} steps, its run {len(view.steps)}; {computed} were computed here again, and "
        f"{same} came out the same."
    )
    if not run.done or run.failed:
        return found, None
    ok = all(check is not None and check.ok for check in checks)
    claimed = plain(json_values.show(claims.ok))
    found += f" Of the whole it says “ok” is {claimed}, and here it is {json_values.show(ok)}."
    return found, claims.ok is ok and same == len(claims.steps) == len(view.steps)


def _as_computed(claim: Any, step: dict[str, Any], check: Check | None) -> bool:
    """A recorded step says what was computed here: event, refusal, state, verdict. Sentences and source lines are
    derived from these; errors, times and the last digits may differ."""
    if not isinstance(claim, dict) or not isinstance(claim.get("check"), dict) or check is None:
        return False
    here = trace.computed(json.loads(json.dumps(step)))
    recorded = trace.computed({name: claim.get(name) for name in step})
    verdict = check.to_json()
    return trace.alike(recorded, here) and all(
        trace.alike(claim["check"].get(name), verdict[name]) for name in trace.VERDICT
    )


def _progress(sandbox: Sandbox, run: ComputedRun) -> None:
    """Show how far a long run is, with a button that stops it."""
    checked, steps = max(0, len(run.checks) - 1), sandbox.num_steps  # also those of tokens that are not generated yet
    if run.failed:
        st.button("Check the rest", on_click=partial(compute.again, KEY, sandbox.scenario), key="sandbox-again")
    elif not run.done and steps - checked > 5:
        bar, stop = st.columns([5, 1])
        bar.progress(min(1.0, checked / steps), f"{checked} of {steps} steps checked")
        stop.button("Stop", on_click=partial(compute.stop, KEY), key="sandbox-stop")
