"""Every lesson: its pages follow its steps, and another seed is another run.

What the kernels say of it is in `tests.lessons.test_on_the_kernels`.
"""

import pytest

from pagedviz import lesson
from pagedviz.run.play import planner
from pagedviz.scenario import scenario

NAMES = lesson.names()
SEEDS = (None, 1, 2)


def test_there_are_lessons_in_the_order_of_their_numbers():
    assert sorted(NAMES, key=lambda name: int(name[:2])) == NAMES
    assert {"02_block_table", "06_copy_on_write", "10_spill_and_reload"} <= set(NAMES)


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
