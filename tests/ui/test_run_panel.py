"""What a browser sends is material to judge: a lens that makes no sense is not asked for, a step is kept."""

import pytest

testing = pytest.importorskip("streamlit.testing.v1", reason="streamlit is not installed")

from pagedviz.probe import Lens  # noqa: E402
from pagedviz.ui import run_panel  # noqa: E402
from pagedviz.ui.run_panel import lens_of  # noqa: E402
from tests.run.run_cases import RUN, SERVING, happenings  # noqa: E402

ASKED = {"run": "03-165", "step": 4, "seq_id": "A", "layer": 1, "head": 0, "num_splits": 2}


def test_what_the_stage_sends_is_a_probe():
    assert lens_of(ASKED) == Lens("A", 1, 0, 2)


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("value", [None, True, 1.0, -1, float("nan"), ["A"], {"A": 1}])
def test_anything_else_is_nothing(name, value):
    assert lens_of({**ASKED, name: value}) is None


@pytest.mark.parametrize(
    "asked", [None, "A", 7, [], {}, *({k: ASKED[k] for k in ASKED if k != name} for name in ASKED)]
)
def test_what_is_missing_is_nothing(asked):
    assert lens_of(asked) is None


def test_the_blocks_of_the_last_layer_are_those_of_its_group():
    state = happenings(SERVING["groups"])[-1].snapshot
    row = state.group_tables[0]["B"]
    assert row[0] == state.null_block != row[1]
    assert run_panel.places_of_last_layer(state, "B")[:2] == ["0: null block", f"1: block {row[1]}"]
    hit = next(step.snapshot for step in happenings(SERVING["groups"]) if step.event.kind == "BlockHit")
    assert run_panel.places_of_last_layer(hit, "B") == ["0: no block yet"]
    spilled = next(step.snapshot for step in happenings(RUN) if step.event.kind == "BlockSpilled")
    assert run_panel.places_of_last_layer(spilled, "B") == ["0: block 0", "1: host block 0"]


def test_a_stage_that_is_built_anew_starts_where_the_learner_was(monkeypatch):
    class View:
        def stage_data(self, name, run, backend):
            return {"run": name}

    sent = []
    monkeypatch.setattr(run_panel, "stage", lambda data, key: sent.append(data["step"]))
    monkeypatch.setattr(run_panel.compute, "backend", lambda: "")
    for at in (None, {"run": "another", "step": 9}, {"run": "mine", "step": 4}):
        monkeypatch.setattr(run_panel.st, "session_state", {run_panel.STAGE: {"at": at}})
        run_panel.show_stage("place", "mine", View(), None, start=1)
    assert sent == [1, 1, 4]


def charts(step):
    from dataclasses import replace

    from pagedviz.run_view import RunView
    from pagedviz.runtime.client import ComputedRun
    from pagedviz.ui import run_panel
    from tests.run.run_cases import RUN
    from tests.run.test_trace import GOOD

    view = RunView(RUN)
    names = view.snapshot(1).block_tables
    pays = replace(GOOD, weights={next(iter(names)): [[1.0]]})
    run_panel.show_charts("x", view, ComputedRun("run-1", RUN, view.steps[:1], [replace(GOOD, weights={}), pays]), step)


@pytest.mark.parametrize(
    ("step", "said", "figures"), [(0, "No weights: ", 0), (1, "What A's newest", 1), (2, "This step has not been", 0)]
)
def test_no_chart_is_drawn_where_there_is_nothing_to_chart(step, said, figures):
    app = testing.AppTest.from_function(charts, args=(step,), default_timeout=60)
    app.run()
    assert not app.exception
    assert app.caption[0].value.startswith(said)
    assert len(app.get("plotly_chart")) == figures
