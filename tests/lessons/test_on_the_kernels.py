"""Every lesson on the kernels, each computed once: it is checked whole, and its questions are answered.

What single lessons claim of the kernels' answers stands here too, so that they are computed by one process.
"""

import functools
import itertools

import pytest

from pagedviz import lesson
from pagedviz.probe import Launch, Lens, UnchainedHit
from pagedviz.runtime.running.runner import Runner
from tests.lessons import test_prefix_caching as prefix_caching
from tests.lessons import test_windows as windows
from tests.runtime.runner.runner_cases import ask

NAMES = lesson.names()
QUICK = "02_block_table"  # the one that `make quick` computes
EVERY = [pytest.param(name, marks=[] if name == QUICK else pytest.mark.slow) for name in NAMES]
SHORT = (QUICK, "03_attention_through_the_table")  # with a second seed also in the interpreter
ANSWERED = [
    *(pytest.param(name, None, marks=[] if name == QUICK else pytest.mark.slow) for name in NAMES),
    *(pytest.param(name, 1, marks=pytest.mark.slow if name in SHORT else pytest.mark.gpu) for name in NAMES),
]


@functools.cache
def on_the_kernels(name, seed):
    """The checks of a lesson's steps, and what the kernels answer to each of its probes.

    With the lesson's own seed of all steps, with another up to the last probe.
    """
    loaded = lesson.load(name, seed)
    runner = Runner(loaded.scenario.cache, loaded.scenario.seed)
    last = None if seed is None else max(index for index, _ in loaded.probes())
    computed = (check for op in loaded.scenario.ops for _, check in runner.perform(op))
    checks = list(itertools.islice(computed, last))
    found = {(index, asked): ask(runner, asked, index) for index, asked in loaded.probes()}
    assert not [answer for answer in found.values() if "refused" in answer]
    return checks, found


def answers(loaded, seed):
    """To all probes with the lesson's own seed, with another where a question is graded by one."""
    graded = any(placed.page.question and placed.page.question.probe for placed in loaded.pages)
    return on_the_kernels(loaded.name, seed)[1] if seed is None or graded else {}


@pytest.mark.parametrize("name", EVERY)
def test_lesson_is_good_at_every_step_on_the_kernels(name):
    checks, _ = on_the_kernels(name, None)
    assert len(checks) == lesson.load(name).pages[-1].graded_at
    assert [check for check in checks if not check.ok] == []


@pytest.mark.parametrize(("name", "seed"), ANSWERED)
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


@pytest.mark.slow
@pytest.mark.parametrize("seed", [None, pytest.param(1, marks=pytest.mark.gpu)])
def test_prefix_caching_block_without_its_chain_is_wrong_from_the_second_layer_on(seed):
    loaded = lesson.load("08_prefix_caching", seed)
    (shown,) = [placed for placed in loaded.pages if placed.page.shows]
    assert shown.page.shows == UnchainedHit("D", "A", 1)
    assert shown.step == prefix_caching.of(seed)["D"].graded_at
    found = on_the_kernels(loaded.name, seed)[1][shown.step, shown.page.shows]
    first, second = found["layers"]
    assert (first["k_error"], first["v_error"]) == (0.0, 0.0)
    assert first["out_error"] <= found["tolerance"]
    assert min(second.values()) > 1000 * found["tolerance"]
    assert not found["ok"]
    assert prefix_caching.of(seed)["D"].graded(found)[0] == 1


@pytest.mark.slow
def test_windows_the_kernel_is_given_both_tables_and_loads_nothing_before_the_window():
    _, found = on_the_kernels(windows.NAME, None)
    placed = windows.of(None)["first"]
    asked, state = placed.page.question.probe, placed.outcome.after
    assert asked == Lens("A", 1, 0)
    told = found[placed.graded_at, asked]
    seen = state.seq_len("A") - windows.WINDOW
    assert [turn["block"] for turn in told["splits"][0]["turns"]] == list(state.tables(1)["A"][seen // windows.SIZE :])
    assert placed.graded(told)[0] == state.tables(1)["A"][seen // windows.SIZE] != 0
    loaded = {p for turn in told["splits"][0]["turns"] for p in turn["positions"] if p is not None}
    assert loaded == set(range(seen, state.seq_len("A")))
    launch = found[placed.graded_at, Launch()]
    assert [group["window"] for group in launch["groups"]] == [None, windows.WINDOW]
    assert [group["block_tables"] for group in launch["groups"]] == [[list(state.tables(g)["A"])] for g in (0, 1)]
