"""A run's record survives being written and read; its verdict is good only when all of it is."""

import json
from dataclasses import replace

import pytest

from pagedviz.engine.log.events.base import Event
from pagedviz.run import trace
from pagedviz.run.trace import Check, Step
from pagedviz.scenario.json_values import ScenarioError
from tests.run.run_cases import RUN, RUNS, happenings

GOOD = Check(
    max_error=1e-7,
    tolerance=1e-5,
    compared=2,
    num_layers=2,
    broken=(),
    num_invariants=10,
    backend="Triton interpreter, CPU",
    milliseconds=3.25,
    weights={"A": [[0.25, 0.75]]},
)


def test_every_step_survives_being_written_and_read():
    steps = [Step.of(happening) for run in RUNS for happening in happenings(run)]
    assert {step.event.kind for step in steps} == set(Event.kinds)
    assert [Step.from_json(json.loads(json.dumps(step.to_json()))) for step in steps] == steps


def test_step_of_a_refusal_says_why_in_its_sentence():
    (step,) = [Step.of(happening) for happening in happenings() if happening.refused]
    assert step.event.kind == "OperationRefused"
    assert step.sentence == step.refused["sentence"]
    assert step.refused | {"error": "NoFreeBlocks", "needed": 1, "free": 0, "total": 3} == step.refused
    assert "C needs 1 more device block, and 0 of 3 are free" in step.sentence


def test_check_survives_being_written_and_read():
    for check in (GOOD, replace(GOOD, max_error=None, broken=("poison: ...",), failed=("A",))):
        assert Check.from_json(json.loads(json.dumps(check.to_json()))) == check


@pytest.mark.parametrize(
    ("change", "ok"),
    [
        ({}, True),
        ({"max_error": 0.0, "compared": 0}, True),
        ({"max_error": 1e-5}, True),
        ({"max_error": 1.1e-5}, False),
        ({"max_error": None}, False),
        ({"broken": ("ref_count: ...",)}, False),
    ],
    ids=str,
)
def test_verdict_is_good_within_the_tolerance_and_with_every_invariant_whole(change, ok):
    assert replace(GOOD, **change).ok == ok


@pytest.mark.parametrize(("last", "ok"), [(GOOD, True), (replace(GOOD, max_error=None), False), (None, False)])
def test_run_is_good_when_every_step_is_checked_and_good(last, ok):
    taken = happenings()
    checks = [GOOD] * (len(taken) - 1) + [last]
    written = trace.to_json(RUN, "b", [(Step.of(h), h.snapshot, c) for h, c in zip(taken, checks, strict=True)])
    assert written["ok"] == ok


def test_trace_gives_back_the_scenario_that_made_it():
    taken = happenings()
    written = trace.to_json(RUN, "b", [(Step.of(happening), happening.snapshot, GOOD) for happening in taken])
    scenario, claims = trace.parse(json.dumps(written))
    assert scenario == RUN
    assert claims.ok is True
    assert [step["event"]["kind"] for step in claims.steps] == [happening.event.kind for happening in taken]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("", "the file is not JSON in UTF-8"),
        (b"\xff\xfe\x00", "the file is not JSON in UTF-8"),
        ('{"pagedviz_trace": 4, "steps', "the file is not JSON in UTF-8"),
        ("[" * 100_000, "the file is not JSON in UTF-8"),
        ("9" * 5000, "the file is not JSON in UTF-8"),
        ("[]", 'a trace says "pagedviz_trace": 4'),
        ('{"pagedviz": 1}', 'a trace says "pagedviz_trace": 4'),
        ('{"pagedviz_trace": 2, "steps": []}', "the trace has version 2; version 4 is read"),
        ('{"pagedviz_trace": 9, "steps": []}', "the trace has version 9; version 4 is read"),
        ('{"pagedviz_trace": null, "steps": []}', "the trace has version null; version 4 is read"),
        ('{"pagedviz_trace": 4, "scenario": {"pagedviz": 1}}', 'the trace has no list of "steps"'),
        ('{"pagedviz_trace": 4, "steps": [], "scenario": {"pagedviz": 2}}', '"pagedviz" is 2'),
        ('{"pagedviz_trace": 4, "steps": []}', "a scenario is an object"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_wrong_trace_is_refused_with_a_sentence(source, sentence):
    with pytest.raises(ScenarioError) as raised:
        trace.parse(source)
    assert sentence in str(raised.value)
