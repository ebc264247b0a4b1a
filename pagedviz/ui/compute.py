"""The server's one compute process, and each session's hold on its run."""

import gc
import threading
import time
from collections.abc import Callable
from threading import RLock

import streamlit as st

from pagedviz.probe import Answer, Probe
from pagedviz.run_view import RunView
from pagedviz.runtime.client import ComputeClient, ComputedRun, Held
from pagedviz.scenario.scenario import Scenario

_drawing = threading.local()  # one thread draws one page
QUICK = 0.15  # seconds that a page waits for an answer before it says that it is asking


@st.cache_resource(show_spinner=False)
def client() -> ComputeClient:
    # Streamlit collects garbage after every run of a page; what the imports made is no garbage, so it is not searched.
    gc.collect()
    gc.freeze()
    return ComputeClient()


def started() -> bool:
    """The compute process has said which backend it has."""
    return bool(client().backend)


def backend() -> str:
    return client().backend or ("no compute process" if client().unavailable else "the compute process is starting")


def follow(name: str, scenario: Scenario) -> tuple[RunView, ComputedRun]:
    """This session's view of a scenario, and its run. `name` is the place on the screen that shows it."""
    state = st.session_state.setdefault("runs", {})
    view: RunView | None
    held: Held | None
    with st.session_state.setdefault("lock", RLock()):  # a page that is overtaken may still be at it
        view, held = state.get(name, (None, None))
        if view is None or held is None or view.scenario != scenario:
            view, held = RunView(scenario), _hold(scenario, held)
            state[name] = (view, held)
        view.follow(held.run)
        return view, held.run


def ask(name: str, index: int, probe: Probe) -> Answer | None:
    """What the tensors of a run answer after `index` steps; None while they are being asked.

    A quick answer is waited for a moment, so that the page is drawn once.
    """
    _, held = st.session_state["runs"][name]
    first = (index, probe) not in held.run.asked
    answer = client().ask(held, index, probe)
    until = time.monotonic() + QUICK
    while answer is None and first and time.monotonic() < until:
        time.sleep(0.01)
        answer = client().ask(held, index, probe)
    if answer is None:
        _drawing.unanswered = True
    return answer


def waits(draw: Callable[[], ComputedRun]) -> tuple[ComputedRun, bool]:
    """Draw a run, and say whether more is to come than what was drawn: an answer may arrive while the page is made."""
    _drawing.unanswered = False
    run = draw()
    return run, run.waiting or _drawing.unanswered


def again(name: str, scenario: Scenario) -> None:
    """Compute a run anew that was given up or stopped. What had been checked stays on the screen meanwhile."""
    view, held = st.session_state["runs"][name]
    st.session_state["runs"][name] = (view, _hold(scenario, held))


def stop(name: str) -> None:
    """Compute no more of what this place shows."""
    view, held = st.session_state["runs"][name]
    st.session_state["runs"][name] = (view, client().stop(held))


def _hold(scenario: Scenario, previous: Held | None) -> Held:
    held = client().hold(scenario, previous)
    if previous is not None:
        previous.let_go()
    return held
