"""Every lesson plays, is checked whole, and has questions that can be answered for any seed."""

import functools

import pytest

from pagedviz import lesson
from pagedviz.run.play import planner
from pagedviz.runtime.running.runner import Runner
from pagedviz.scenario import scenario
from tests.runtime.runner.runner_cases import ask

NAMES = lesson.names()
SEEDS = (None, 1, 2)


def test_there_are_lessons_in_the_order_of_their_numbers():
    assert sorted(NAMES, key=lambda name: int(name[:2])) == NAMES
    assert {"02_block_table", "06_copy_on_write", "10_spill_and_reload"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_lesson_is_good_at_every_step_on_the_kernels(name):
    checks, _ = on_the_kernels(name, None)
    assert len(checks) == lesson.load(name).pages[-1].graded_at
    assert [check for check in checks if not check.ok] == []


@pytest.mark.parametrize("name", NAMES)
def test_lesson_fits_a_link_and_plays_the_same_from_it(name):
    written = lesson.load(name).scenario
    assert scenario.parse(written.to_text()) == written


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", NAMES)
def test_every_step_has_its_page_and_every_page_its_step(name, seed):
    loaded = lesson.load(name, seed)
    steps = [placed.step for placed in loaded.pages]
    assert steps == sorted(set(steps))
    assert loaded.page_at(0) is loaded.pages[0]
    assert [loaded.page_at(step) for step in steps] == list(loaded.pages)
    assert loaded.page_at(10_000) is loaded.pages[-1]
    assert all(placed.page.title and placed.page.text for placed in loaded.pages)


@functools.cache
def on_the_kernels(name, seed):
    """The checks of a lesson's steps, and what the kernels answer to each of its probes."""
    loaded = lesson.load(name, seed)
    runner = Runner(loaded.scenario.cache, loaded.scenario.seed)
    checks = [check for op in loaded.scenario.ops for _, check in runner.perform(op)]
    found = {(index, asked): ask(runner, asked, index) for index, asked in loaded.probes()}
    assert not [answer for answer in found.values() if "refused" in answer]
    return checks, found


def answers(loaded, seed):
    """To all probes with the lesson's own seed, with another where a question is graded by one."""
    graded = any(placed.page.question and placed.page.question.probe for placed in loaded.pages)
    return on_the_kernels(loaded.name, seed)[1] if seed is None or graded else {}


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("name", NAMES)
def test_questions_are_answered_by_what_happens_next(name, seed):
    loaded = lesson.load(name, seed)
    questions = [placed for placed in loaded.pages if placed.page.question]
    assert questions
    found = answers(loaded, seed)
    for placed in questions:
        question = placed.page.question
        answer, explanation = placed.graded(found.get((placed.graded_at, question.probe)))
        assert placed.graded_at > placed.step
        if question.choices:
            assert answer in question.choices
            assert len(set(question.choices)) == len(question.choices) > 1
        else:
            assert type(answer) is int
        assert explanation.strip()


@pytest.mark.parametrize("name", NAMES)
def test_another_seed_is_another_run_of_the_same_length(name):
    one, other = lesson.load(name, 1), lesson.load(name, 2)
    assert one.scenario != other.scenario
    assert len(one.pages) == len(other.pages)
    assert one.scenario == lesson.load(name, 1).scenario


@pytest.mark.parametrize("name", NAMES)
def test_pages_outcome_is_the_state_that_the_scenario_gives(name):
    loaded = lesson.load(name)
    player = planner(loaded.scenario.cache, loaded.scenario.seed)
    states = [player.base] + [h.snapshot for op in loaded.scenario.ops for h in player.perform(op)]
    for placed in loaded.pages:
        assert placed.outcome.before == states[placed.step]
        assert placed.outcome.after == states[placed.graded_at]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", NAMES)
def test_the_stage_is_at_the_sequence_that_the_kernel_is_asked_about(name, seed):
    loaded = lesson.load(name, seed)
    player = planner(loaded.scenario.cache, loaded.scenario.seed)
    events = [h.event for op in loaded.scenario.ops for h in player.perform(op)]
    for index, asked in loaded.probes():
        if hasattr(asked, "seq_id"):
            assert events[index - 1].seq_id == asked.seq_id
