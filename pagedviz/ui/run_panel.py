"""A run on the screen: the stage, and the charts and downloads below it. Every page that shows a run uses it."""

import json
from collections.abc import Callable
from typing import Any

import streamlit as st

from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.figures.attention_weights import attention_weights
from pagedviz.figures.error_by_step import error_by_step
from pagedviz.figures.memory_by_step import memory_by_step
from pagedviz.probe import Lens
from pagedviz.run import trace
from pagedviz.run_view import RunView
from pagedviz.runtime.client import ComputedRun
from pagedviz.ui import compute
from pagedviz.ui.elements.chart import chart
from pagedviz.ui.elements.markdown import plain
from pagedviz.ui.stage import stage

POLL_SECONDS = 0.6  # between two looks for new verdicts
ANSWER_SECONDS = 0.2  # between two looks for an answer, when every verdict is there
STAGE = "stage"  # one key for all pages, so that the stage is never there twice while pages change


def step_of(name: str, start: int) -> int:
    """The step of a run that the stage shows; `start` until the stage reports one."""
    at = (st.session_state.get(STAGE) or {}).get("at")
    return int(at["step"]) if at and at["run"] == name else start


def go(name: str, step: int) -> None:
    """Ask the stage to play to a step of a run as soon as the stage has that step.

    Only callbacks call this: Streamlit may draw a page twice, and a wish must be written once.
    """
    nonce = st.session_state["nonce"] = st.session_state.get("nonce", 0) + 1
    st.session_state.setdefault("wishes", {})[name] = {"nonce": nonce, "step": step, "play": True}


def live(key: str, body: Callable[[], ComputedRun]) -> None:
    """Show the body of a page, and draw it again at intervals while its run is being computed."""
    poll = st.session_state.get(f"{key}-poll", POLL_SECONDS)
    started = compute.started()

    def fragment() -> None:
        run, waiting = compute.waits(body)
        now = None if not waiting else ANSWER_SECONDS if run.done else POLL_SECONDS
        if poll != now or started != compute.started():
            st.session_state[f"{key}-poll"] = now
            st.rerun()

    st.fragment(fragment, run_every=poll)()


def show_stage(place: str, name: str, view: RunView, run: ComputedRun, start: int, **more: Any) -> None:
    """Show the stage. `name` identifies the run: while it is the same, the stage stays at the learner's step. `place`
    is what `compute.follow` was called with."""
    data = view.stage_data(name, run, compute.backend())
    # After a lost connection the browser builds the stage again; it then continues at the learner's step.
    data |= {"step": step_of(name, start), "goto": _wish(name), "pauses": [], "veil": None, "in_address": True}
    data |= {"lens": _lens(place, name, view)}
    stage(data | more, key=STAGE)


def _wish(name: str) -> dict[str, Any] | None:
    """The step that the stage should play to. It is sent until the stage, which may be new, confirms it."""
    wish: dict[str, Any] | None = st.session_state.get("wishes", {}).get(name)
    confirmed = (st.session_state.get(STAGE) or {}).get("at") or {}
    return None if wish is None or wish["nonce"] <= (confirmed.get("nonce") or 0) else wish


def _lens(place: str, name: str, view: RunView) -> dict[str, Any] | None:
    """What the open lens asks for, and the answer of the kernel, None until it is there."""
    asked: Any = (st.session_state.get(STAGE) or {}).get("lens")
    probe = lens_of(asked)
    if probe is None or asked["run"] != name or asked["step"] > len(view.steps):
        return None
    return {"asked": asked, "answer": compute.ask(place, asked["step"], probe)}


def lens_of(asked: Any) -> Lens | None:
    """The probe that the stage asks for; None where it makes no sense, since a browser may send anything.

    Only whole numbers are taken: True and 1.0 are equal to 1 as keys of the answers, but not to a kernel.
    """
    match asked:
        case {"run": str(), "step": step, "seq_id": str(seq_id), **more}:
            numbers = [step, *(more.get(name) for name in ("layer", "head", "num_splits"))]
            if all(type(number) is int and number >= 0 for number in numbers):
                return Lens(seq_id, *numbers[1:])
    return None


def show_charts(key: str, view: RunView, run: ComputedRun, step: int) -> None:
    """The three charts of a run, one at a time."""
    charts = {
        "Attention weights": lambda: _weights(key, view, run, step),
        "Error by step": lambda: _error(key, view, run, step),
        "Memory by step": lambda: _memory(key, view, step),
    }
    chosen = st.segmented_control(
        "Chart", list(charts), default="Attention weights", key=f"{key}-chart", label_visibility="collapsed"
    )
    if chosen:
        charts[chosen]()


def _weights(key: str, view: RunView, run: ComputedRun, step: int) -> None:
    check = view.checks(run)[step]
    if check is None:
        st.caption("This step has not been checked yet.")
        return
    seq_id, rows = next(iter(check.weights.items()), ("", []))
    if not rows:
        st.caption("No weights: this step concerns no token, a sequence of more than 64 blocks, or NaN in its keys.")
        return
    st.caption(
        f"What {plain(seq_id)}'s newest token pays to each of its blocks, last layer, summed over its tokens: "
        "softmax in float64 over the plain log. All blocks of one head together make 1."
    )
    places = places_of_last_layer(view.snapshot(step), seq_id)
    alt = f"Attention weights of {seq_id}'s newest token by block"
    chart(attention_weights(rows, places[: len(rows[0])]), f"{key}-weights", alt)


def places_of_last_layer(snapshot: Snapshot, seq_id: str) -> list[str]:
    """Where each logical block of a sequence lies in the last layer, which is of the last group."""
    row, names = snapshot.all_tables[-1][seq_id], []
    for j, host_block in enumerate(snapshot.host_tables[seq_id]):
        block = row[j] if j < len(row) else None  # a hit fills the tables group by group
        if block is None:
            names.append("no block yet" if host_block is None else f"host block {host_block}")
        else:
            names.append("null block" if block == snapshot.null_block else f"block {block}")
    return [f"{j}: {name}" for j, name in enumerate(names)]


def _error(key: str, view: RunView, run: ComputedRun, step: int) -> None:
    st.caption("The largest difference between the paged kernel and dense attention, over all layers and sequences.")
    chart(error_by_step(view.checks(run), step), f"{key}-error", "Largest error of each step, against the tolerance")


def _memory(key: str, view: RunView, step: int) -> None:
    now = view.memory[step]
    several = len(view.snapshot(step).windows) > 1
    shared = f"; {now.entries} table entries name {now.blocks} blocks" if now.entries > now.blocks else ""
    st.caption(
        f"Now: {now.filled} slots filled, {now.unfilled} unfilled in used blocks, {now.free} free{shared}. "
        f"A slot holds one token's K and V in every layer{' of a group' if several else ''}."
    )
    chart(memory_by_step(view.memory, step), f"{key}-memory", "Slots of the device pool by step")


def show_downloads(key: str, view: RunView, run: ComputedRun, name: str) -> None:
    """Offer the scenario and the trace as files. The trace goes as far as the run has been computed."""
    with st.popover("Export"):
        st.download_button(
            "Scenario (JSON)",
            view.scenario.to_text(),
            f"{name}.json",
            "application/json",
            key=f"{key}-scenario",
            on_click="ignore",
        )
        st.download_button(
            "Trace with verdicts (JSON)",
            _trace(view, run),
            f"{name}-trace.json",
            "application/json",
            key=f"{key}-trace",
            on_click="ignore",
        )
        st.caption("`python -m pagedviz run FILE` plays a scenario without a screen.")


def _trace(view: RunView, run: ComputedRun) -> Callable[[], str]:
    def text() -> str:
        checks = view.checks(run)
        steps = [(step, view.snapshot(k), checks[k]) for k, step in enumerate(view.steps, 1)]
        return json.dumps(trace.to_json(view.scenario, compute.backend(), steps), ensure_ascii=False)

    return text
