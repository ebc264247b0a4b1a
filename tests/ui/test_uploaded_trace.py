"""An uploaded trace is compared with what is computed here: its steps, its verdicts, and what it says of the whole."""

import json
from dataclasses import replace

import pytest

pytest.importorskip("streamlit", reason="streamlit is not installed")

from pagedviz.run import trace
from pagedviz.run.trace import Claims, Step
from pagedviz.run_view import RunView
from pagedviz.runtime.client import ComputedRun
from pagedviz.scenario.operations import Add, Append
from pagedviz.scenario.scenario import Scenario
from pagedviz.ui.pages import sequences
from pagedviz.ui.pages.sequences import compared
from tests.runtime.runner.runner_cases import TINY, Played

RUN = Scenario(0, TINY, (Add("A", ("a", "b", "c")), Append("A", ("d",))))


@pytest.fixture(scope="module")
def run():
    """A run as it was computed here, and the trace that it leaves."""
    played = Played(*RUN.ops)
    steps = [Step.of(happening) for happening, _ in played.steps]
    computed = ComputedRun("run", RUN, steps, [played.start, *played.checks], finished_ops=2)
    kept = [(step, happening.snapshot, check) for step, (happening, check) in zip(steps, played.steps, strict=True)]
    _, claims = trace.parse(json.dumps(trace.to_json(RUN, "another backend", kept)))
    return computed, claims


def test_a_trace_of_this_run_is_as_it_says(run):
    computed, claims = run
    said, same = compared(claims, RunView(RUN), computed)
    assert same
    assert said == (
        "The trace has 5 steps, its run 5; 5 were computed here again, and 5 came out the same. "
        "Of the whole it says “ok” is true, and here it is true."
    )


@pytest.mark.parametrize(("ok", "shown"), [(False, "false"), (None, "null"), (1, "1"), ("*yes*", r'"\*yes\*"')])
def test_what_a_trace_says_of_the_whole_is_compared_too(run, ok, shown):
    computed, claims = run
    said, same = compared(replace(claims, ok=ok), RunView(RUN), computed)
    assert same is False
    assert said.endswith(f"5 came out the same. Of the whole it says “ok” is {shown}, and here it is true.")


def test_a_run_that_went_wrong_here_is_not_ok_here(run):
    computed, claims = run
    wrong = replace(computed, checks=[*computed.checks[:-1], replace(computed.checks[-1], max_error=None)])
    said, same = compared(claims, RunView(RUN), wrong)
    assert same is False
    assert said.endswith("4 came out the same. Of the whole it says “ok” is true, and here it is false.")


def test_steps_that_say_otherwise_are_counted(run):
    computed, claims = run
    other = [*claims.steps[:4], claims.steps[4] | {"sentence": "Nothing happened."}]
    said, same = compared(Claims(True, other), RunView(RUN), computed)
    assert same is False
    assert "and 4 came out the same." in said
    assert compared(Claims(True, [3, None]), RunView(RUN), computed)[1] is False


def test_before_all_is_computed_nothing_is_said_of_the_whole(run):
    computed, claims = run
    for part in (
        replace(computed, checks=computed.checks[:3], finished_ops=0),
        replace(computed, checks=computed.checks[:3], finished_ops=0, failed="Checking was stopped."),
    ):
        said, same = compared(claims, RunView(RUN), part)
        assert same is None
        assert said == "The trace has 5 steps, its run 5; 2 were computed here again, and 2 came out the same."


@pytest.mark.parametrize(("score", "same"), [(-1.50001, True), (-1.6, False), (None, False)])
def test_scores_of_another_machine_may_differ_by_rounding_alone(run, score, same):
    computed, _ = run
    claim = {"event": {"scores": [score]}, "check": {"ok": True}}
    assert sequences._as_computed(claim, {"event": {"scores": (-1.5,)}}, computed.checks[0]) is same
