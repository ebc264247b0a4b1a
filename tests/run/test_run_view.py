"""What the app shows of a run before, while and after it is computed."""

import json
from dataclasses import replace

from pagedviz import run_view
from pagedviz.engine.log.replay import history
from pagedviz.run.memory import memory
from pagedviz.run.play import Player, planner
from pagedviz.run.trace import Step
from pagedviz.run_view import RunView
from pagedviz.runtime.client import ComputedRun
from pagedviz.scenario.operations import Add, Append, Generate
from pagedviz.scenario.scenario import Scenario
from pagedviz.scenario.settings import CacheConfig
from tests.model.model_cases import scores_of
from tests.run.run_cases import RUN
from tests.run.test_trace import GOOD

GENERATES = Scenario(cache=CacheConfig(), ops=(Add("A", ("a",)), Generate("A", 2), Append("A", ("z",))))


def computed(scenario, player=None):
    """All steps of a run as the compute process would send them, each with a good verdict; and the states."""
    player = player or planner(scenario.cache, scenario.seed)
    happenings = [happening for op in scenario.ops for happening in player.perform(op)]
    steps = [Step.of(happening) for happening in happenings]
    return ComputedRun("run-1", scenario, steps, [GOOD] * (len(steps) + 1)), [player.base] + [
        happening.snapshot for happening in happenings
    ]


def test_run_of_given_tokens_is_planned_to_its_end_and_no_verdict_is_shown_before_it_is_computed():
    view = RunView(RUN)
    run, _ = computed(RUN)
    assert view.steps == run.steps
    assert view.checks(ComputedRun("run-1", RUN)) == [None] * (len(run.steps) + 1)
    part = ComputedRun("run-1", RUN, run.steps[:3], [GOOD] * 4)
    assert view.checks(part) == [GOOD] * 4 + [None] * (len(run.steps) - 3)
    assert view.checks(run) == run.checks


def test_words_of_the_model_are_planned_and_one_that_it_says_otherwise_is_a_failed_check():
    view, (run, _) = RunView(GENERATES), computed(GENERATES)
    assert view.steps == run.steps
    assert view.num_planned == len(run.steps) == 6
    said = run.steps[3].event.token
    assert view.checks(run) == run.checks
    other = Player(GENERATES.cache, 0, lambda seq_id, position: scores_of("find" if said != "find" else "now"))
    checks = view.checks(computed(GENERATES, other)[0])
    assert next(k for k, check in enumerate(checks) if not check.ok) == 4
    assert f"replay: the app planned TokenWritten(seq_id='A', position=1, token='{said}'" in checks[4].broken[0]


def test_plan_stops_where_rounding_may_choose_and_follows_from_there(monkeypatch):
    monkeypatch.setattr(run_view, "CLOSE", 100.0)
    view, (run, states) = RunView(GENERATES), computed(GENERATES)
    assert [step.event.kind for step in view.steps] == ["SequenceAdded", "BlockAllocated", "TokenWritten"]
    view.follow(ComputedRun("run-1", GENERATES, run.steps[:4]))
    assert len(view.steps) == 4
    view.follow(run)
    view.follow(run)
    assert view.steps == run.steps
    assert view.snapshot(len(run.steps)) == states[-1]
    assert view.num_planned == 3


def test_step_that_was_planned_otherwise_is_a_failed_check():
    view, (run, _) = RunView(RUN), computed(RUN)
    other = replace(run.steps[3], event=replace(run.steps[3].event, tokens=("a", 7, 7)))
    checks = view.checks(replace(run, steps=[*run.steps[:3], other, *run.steps[4:]]))
    assert [k for k, check in enumerate(checks) if not check.ok] == [4]
    assert checks[4].broken[0].startswith("replay: the app planned TokensWritten(seq_id='A', position=0")


def test_every_state_is_there_whether_planned_or_followed(monkeypatch):
    monkeypatch.setattr(history, "KEY_FRAME", 3)
    for scenario, close in ((RUN, 0.0), (GENERATES, 0.0), (GENERATES, 100.0)):
        monkeypatch.setattr(run_view, "CLOSE", close)
        view, (run, states) = RunView(scenario), computed(scenario)
        view.follow(run)
        assert [view.snapshot(k) for k in range(len(states))] == states
        assert view.memory == [memory(state) for state in states]


def test_stage_gets_the_run_as_plain_json():
    view, (run, _) = RunView(RUN), computed(RUN)
    data = json.loads(json.dumps(view.stage_data("lesson:x:0", run, "a backend")))
    assert data["base"] == json.loads(json.dumps(view.base.to_json()))
    assert len(data["checks"]) == len(data["steps"]) + 1
    assert data["checks"][0]["weights"] == {"A": [[0.25, 0.75]]}
    for step, shown in zip(view.steps, data["steps"], strict=True):
        excerpt = data["excerpts"][shown["source"]["excerpt"]]
        assert excerpt["first_line"] <= shown["source"]["line"] < excerpt["first_line"] + len(excerpt["lines"])
        assert (shown["sentence"], shown["op"], shown["op_text"]) == (step.sentence, step.op_index, step.op)
    assert len(data["excerpts"]) == len({(e["file"], e["name"]) for e in data["excerpts"]})


def test_status_is_why_the_run_was_given_up_or_begun_anew():
    view, (run, _) = RunView(RUN), computed(RUN)
    assert view.stage_data("x", run, "")["status"] == ""
    run.notice = "It was started again."
    assert view.stage_data("x", run, "")["status"] == "It was started again."
    run.failed = "It was given up."
    assert view.stage_data("x", run, "")["status"] == "It was given up."
