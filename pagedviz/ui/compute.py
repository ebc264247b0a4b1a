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
    # Streamlit collects garbage after every run of a page. Objects that the imports made need not be searched again.
    gc.collect()
    gc.freeze()
    return ComputeClient()


def started() -> bool:
    """The compute process has reported its backend."""
    return bool(client().backend)


def backend() -> str:
    return client().backend or ("no compute process" if client().unavailable else "the compute process is starting")


def follow(name: str, scenario: Scenario) -> tuple[RunView, ComputedRun]:
    """This session's view of a scenario, and its run. `name` is the place on the screen that shows it."""
    state = st.session_state.setdefault("runs", {})
    view: RunView | None
    held: Held | None
    with st.session_state.setdefault("lock", RLock()):  # the page may be drawn again while it is being drawn
        view, held = state.get(name, (None, None))
        if view is None or held is None or view.scenario != scenario:
            view, held = RunView(scenario), _hold(scenario, held)
            state[name] = (view, held)
        view.follow(held.run)
        return view, held.run


def ask(name: str, index: int, probe: Probe) -> Answer | None:
    """The answer of the tensors after `index` steps; None until it is there.

    Waits a moment for a quick answer, so that the page is drawn once.
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
    """Draw a run, and return it with True if the rest of it or an answer was missing when it was drawn."""
    _drawing.unanswered = False
    run = draw()
    return run, run.waiting or _drawing.unanswered


def again(name: str, scenario: Scenario) -> None:
    """Compute a run again that failed or was stopped. Its checks stay on the screen until then."""
    view, held = st.session_state["runs"][name]
    st.session_state["runs"][name] = (view, _hold(scenario, held))


def stop(name: str) -> None:
    """Stop computing the run of this place."""
    view, held = st.session_state["runs"][name]
    st.session_state["runs"][name] = (view, client().stop(held))


def _hold(scenario: Scenario, previous: Held | None) -> Held:
    held = client().hold(scenario, previous)
    if previous is not None:
        previous.let_go()
    return held
