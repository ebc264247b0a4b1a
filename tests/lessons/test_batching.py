"""What the lesson on continuous batching says holds for every seed that a learner may choose; no kernel."""

from dataclasses import replace

import pytest

from pagedviz import lesson
from pagedviz.engine.requests.timetable import idle_seats, timetable
from pagedviz.run.play import planner
from pagedviz.runtime import probes
from pagedviz.runtime.running.recording import Moment
from pagedviz.scenario.operations import EngineSteps

SEEDS = range(24)


@pytest.fixture(scope="module")
def taught():
    return {seed: lesson.load("12_continuous_batching", seed) for seed in SEEDS}


def rows_of(scenario, **settings):
    player = planner(replace(scenario.cache, **settings), scenario.seed)
    ops = (*scenario.ops, EngineSteps(50))
    return timetable(happening.event for op in ops for happening in player.perform(op))


def asked(loaded):
    return [placed for placed in loaded.pages if placed.page.question]


def graded(loaded, placed):
    found, ends = None, [0]
    if placed.page.question.probe:
        player = planner(loaded.scenario.cache, loaded.scenario.seed)
        for op in loaded.scenario.ops:
            ends.append(ends[-1] + len(list(player.perform(op))))
        ops = loaded.scenario.ops[: ends.index(placed.graded_at)]
        moment = Moment(replace(loaded.scenario, ops=ops), None, placed.outcome.after, None, {})
        found = probes.answer(placed.page.question.probe, moment)
    return placed.graded(found)[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_static_batches_leave_more_places_idle_and_take_more_steps(taught, seed):
    scenario = taught[seed].scenario
    seats = scenario.cache.scheduler.max_num_seqs
    own, static = rows_of(scenario), rows_of(scenario, policies=(("batching", "static_batches"),))
    says = [len(op.says) for op in scenario.ops[:5]]
    # A seat is busy for one step a word; a static batch takes as long as its longest.
    steps = max(says[:3]) + max(says[3:])
    assert (len(static), idle_seats(static, seats)) == (steps, steps * seats - sum(says))
    assert idle_seats(own, seats) == len(own) * seats - sum(says) < idle_seats(static, seats)
    assert len(own) < len(static)
    questions = asked(taught[seed])
    assert graded(taught[seed], questions[4]) == idle_seats(static, seats)
    assert graded(taught[seed], questions[5]) == len(own)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_request_is_preempted_and_no_step_passes_its_bounds(taught, seed):
    scenario = taught[seed].scenario
    limits = scenario.cache.scheduler
    for policies in ((), (("batching", "static_batches"),)):
        for row in rows_of(scenario, policies=policies):
            assert row.preempted == []
            assert 0 < row.num_tokens <= limits.max_num_batched_tokens
            assert len(row.computed) <= limits.max_num_seqs


@pytest.mark.parametrize("seed", SEEDS)
def test_d_comes_one_step_after_a_is_done_if_its_blocks_are_there_and_no_request_overtakes_it(taught, seed):
    scenario = taught[seed].scenario
    own, d = rows_of(scenario), len(scenario.ops[3].tokens)
    done = next(i for i, row in enumerate(own) if "A" in row.finished)
    came = {seq_id: i for i, row in enumerate(own) for seq_id in row.admitted}
    assert came["D"] == done + (1 if d <= 12 else 2)
    assert came["D"] <= came["E"]
    assert graded(taught[seed], asked(taught[seed])[3]) == ("D" if d <= 12 else "Nobody")


@pytest.mark.parametrize("seed", SEEDS)
def test_what_can_never_fit_is_refused_and_the_sampled_word_is_in_no_slot(taught, seed):
    first, _, written, *_ = asked(taught[seed])
    assert [event.kind for event in first.outcome.events] == ["OperationRefused"]
    assert first.graded()[0] == "It is refused at once"
    after = written.outcome.after
    assert written.graded()[0] == len(after.requests["B"].prompt) + len(after.requests["B"].output) - 1


def test_seeds_ask_different_questions(taught):
    assert {graded(loaded, asked(loaded)[3]) for loaded in taught.values()} == {"D", "Nobody"}
    assert len({graded(loaded, asked(loaded)[4]) for loaded in taught.values()}) > 1
