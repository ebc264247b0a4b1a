"""What the lesson on chunked prefill says holds for every seed that a learner may choose; no kernel."""

from dataclasses import replace

import pytest

from pagedviz import lesson
from pagedviz.engine.requests.timetable import timetable
from pagedviz.run.play import planner
from pagedviz.runtime import probes
from pagedviz.runtime.running.recording import Moment
from pagedviz.scenario.operations import EngineSteps, Submit

SEEDS = range(24)


@pytest.fixture(scope="module")
def taught():
    return {seed: lesson.load("13_chunked_prefill", seed) for seed in SEEDS}


def rows_of(scenario, *more, **settings):
    player = planner(replace(scenario.cache, **settings), scenario.seed)
    return timetable(happening.event for op in (*scenario.ops, *more) for happening in player.perform(op))


def found(loaded, asked, at):
    player, ends = planner(loaded.scenario.cache, loaded.scenario.seed), [0]
    for op in loaded.scenario.ops:
        ends.append(ends[-1] + len(list(player.perform(op))))
    ops = loaded.scenario.ops[: ends.index(at)]
    return probes.answer(asked, Moment(replace(loaded.scenario, ops=ops), None, None, None, {}))


def answers(loaded):
    asked = [placed for placed in loaded.pages if placed.page.question]
    probed = [(placed, placed.page.question.probe) for placed in asked]
    return [placed.graded(probe and found(loaded, probe, placed.graded_at))[0] for placed, probe in probed]


@pytest.mark.parametrize("seed", SEEDS)
def test_questions_have_the_answers_that_budget_and_lengths_give(taught, seed):
    prompts = {op.seq_id: len(op.tokens) for op in taught[seed].scenario.ops if isinstance(op, Submit)}
    says = {op.seq_id: op.num_tokens for op in taught[seed].scenario.ops if isinstance(op, Submit)}
    first, slot, third, read, tokens, none = answers(taught[seed])
    # The budget is 8; B's words come in the first steps, and its last in the fourth or fifth.
    assert first == 6
    assert third == (7 if says["B"] == 4 else 6)
    assert read == 6 + 12 + (12 + third) + prompts["L"]
    assert tokens == prompts["L"] + 3
    assert none == 0
    row = taught[seed].pages[2].outcome.before.block_tables["L"]
    assert slot == row[6 // 4] * 4 + 6 % 4


@pytest.mark.parametrize("seed", SEEDS)
def test_stage_holds_no_request_up_and_pays_by_reading(taught, seed):
    loaded = taught[seed]
    shown = loaded.pages[5]
    whole, orca, prompts_first, stage = found(loaded, shown.page.shows, shown.step)["others"]
    budget, prompt = loaded.scenario.cache.scheduler.max_num_batched_tokens, whole["read"]
    assert whole["chunks"] == orca["chunks"] == 1
    assert whole["scores"] == orca["scores"] == prompts_first["scores"] == stage["scores"] == prompt * (prompt + 1) // 2
    assert (whole["wait"]["steps"], orca["wait"]["steps"], stage["wait"]["steps"]) == (2, 1, 1)
    assert prompts_first["wait"]["steps"] == prompts_first["chunks"] + 1
    assert stage["most"] <= budget < prompt < orca["most"]
    assert stage["wait"]["tokens"] <= budget < min(t["wait"]["tokens"] for t in (whole, orca, prompts_first))
    assert prompt < prompts_first["read"] < stage["read"]
    assert whole["first_word"] == orca["first_word"] < prompts_first["first_word"] < stage["first_word"]


@pytest.mark.parametrize("seed", SEEDS)
def test_without_the_gate_m_is_preempted_computes_twice_and_is_done_no_sooner(taught, seed):
    scenario = taught[seed].scenario
    gate = rows_of(scenario, EngineSteps(50))
    door = rows_of(scenario, EngineSteps(50), policies=(("admission", "first_chunk_fits"),))
    assert [row.preempted for row in gate if row.preempted] == []
    assert [row.preempted for row in door if row.preempted] == [["M"]]
    thrown_away = sum(row.computed.get("M", 0) for row in door) - sum(row.computed.get("M", 0) for row in gate)
    assert thrown_away == 6
    done = [next(i for i, row in enumerate(rows) if "M" in row.finished) for rows in (gate, door)]
    assert done[0] <= done[1]
    assert all(0 < row.num_tokens <= row.token_budget for row in (*gate, *door))


def test_seeds_ask_different_questions(taught):
    asked = [answers(loaded) for loaded in taught.values()]
    assert all(len({each[i] for each in asked}) > 1 for i in (1, 2, 3, 4))
