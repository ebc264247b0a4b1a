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


REFUSING = Scenario(0, TINY, (*RUN.ops, Add("B", ("b",) * 17)))  # more than the pool has


def recorded(scenario):
    """A run as it was computed here, and the trace that it leaves."""
    played = Played(*scenario.ops)
    steps = [Step.of(happening) for happening, _ in played.steps]
    run = ComputedRun("run", scenario, steps, [played.start, *played.checks], finished_ops=len(scenario.ops))
    kept = [(step, happening.snapshot, check) for step, (happening, check) in zip(steps, played.steps, strict=True)]
    _, claims = trace.parse(json.dumps(trace.to_json(scenario, "another backend", kept)))
    return run, claims


@pytest.fixture(scope="module")
def run():
    return recorded(RUN)


@pytest.fixture(scope="module")
def refusing():
    return recorded(REFUSING)


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


def test_a_trace_with_other_source_lines_and_sentences_is_the_same(refusing):
    computed, claims = refusing
    other = [step | {"sentence": "Said otherwise.", "source": {"file": "old.py", "line": 1}} for step in claims.steps]
    assert any(step["refused"] for step in other)
    for step in other:
        if step["refused"]:
            step["refused"] = step["refused"] | {"sentence": "Refused otherwise."}
    assert compared(Claims(claims.ok, other), RunView(REFUSING), computed)[1] is True


@pytest.mark.parametrize(
    ("index", "path"),
    [
        (4, ("op_index",)),
        (4, ("event", "slot")),
        (3, ("snapshot", "block_size")),
        (5, ("refused", "needed")),
        (3, ("check", "compared")),
        (3, ("check", "num_layers")),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else str(value),
)
def test_a_trace_with_one_altered_number_is_different(refusing, index, path):
    computed, claims = refusing
    steps = json.loads(json.dumps(claims.steps))
    *outer, name = path
    part = steps[index]
    for key in outer:
        part = part[key]
    part[name] += 1
    said, same = compared(Claims(claims.ok, steps), RunView(REFUSING), computed)
    assert same is False
    assert f"and {len(steps) - 1} came out the same." in said


def test_a_claim_that_is_no_step_is_counted_as_different(run):
    computed, _ = run
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
    claim = {"event": {"scores": [score]}, "check": computed.checks[0].to_json()}
    assert sequences._as_computed(claim, {"event": {"scores": (-1.5,)}}, computed.checks[0]) is same
