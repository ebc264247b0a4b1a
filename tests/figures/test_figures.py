"""Figures draw the numbers they are given, and nothing that has not been computed."""

from dataclasses import replace

import pytest

pytest.importorskip("plotly")

from pagedviz.figures.attention_weights import attention_weights
from pagedviz.figures.counts_by_block_size import counts_by_block_size
from pagedviz.figures.error_by_step import FLOOR, error_by_step
from pagedviz.figures.memory_by_step import memory_by_step
from pagedviz.run.memory import Memory
from tests.run.test_trace import GOOD


def traces(figure):
    return {trace.name: trace for trace in figure.data}


def test_errors_stand_at_their_steps_and_unchecked_states_are_absent():
    bad = replace(GOOD, max_error=3e-5)
    exact = replace(GOOD, max_error=0.0)
    drawn = traces(error_by_step([replace(GOOD, compared=0), GOOD, bad, exact, None], step=2))
    assert (drawn["within tolerance"].x, drawn["within tolerance"].y) == ((1, 3), (1e-7, FLOOR))
    assert (drawn["failed"].x, drawn["failed"].y) == ((2,), (3e-5,))


def test_error_that_is_not_finite_is_drawn_as_failed_and_said():
    drawn = traces(error_by_step([replace(GOOD, max_error=None)], step=0))
    assert list(drawn) == ["failed"]
    assert drawn["failed"].customdata == ("not finite",)


def test_tolerance_and_the_step_are_lines():
    tolerance, step = error_by_step([GOOD, GOOD], step=1).layout.shapes
    assert (tolerance.y0, tolerance.y1) == (1e-5, 1e-5)
    assert (step.x0, step.x1) == (1, 1)
    assert [shape.x0 for shape in error_by_step([None], step=0).layout.shapes] == [0]


def test_memory_is_stacked_in_slots():
    drawn = traces(memory_by_step([Memory(0, 0, 8, 0, 0, 0), Memory(3, 1, 4, 2, 1, 0)], step=1))
    assert {name: trace.y for name, trace in drawn.items()} == {
        "filled": (0, 3),
        "unfilled, in a used block": (0, 1),
        "free": (8, 4),
    }


def test_host_blocks_are_drawn_when_there_are_any():
    drawn = traces(memory_by_step([Memory(0, 0, 8, 0, 0, 0), Memory(0, 0, 8, 0, 0, 2)], step=0))
    assert drawn["blocks on the host"].y == (0, 2)


def test_weights_are_a_bar_for_each_head_and_block():
    drawn = traces(attention_weights([[0.25, 0.75], [1.0, 0.0]], ["block 7", "block 2"]))
    assert drawn["query head 0"].x == ("block 7", "block 2")
    assert drawn["query head 0"].y == (0.25, 0.75)
    assert drawn["query head 1"].y == (1.0, 0.0)


def test_counts_are_a_bar_for_each_count_and_block_size():
    rows = [
        {"block_size": 4, "wasted": 3, "hit": 12, "entries": 9, "copies": 1},
        {"block_size": 16, "wasted": 11, "hit": 0, "entries": 3, "copies": 1},
    ]
    drawn = traces(counts_by_block_size(rows))
    assert {name: (trace.x, trace.y) for name, trace in drawn.items()} == {
        "wasted slots": (("4", "16"), (3, 11)),
        "tokens a prefix could hit": (("4", "16"), (12, 0)),
        "table entries": (("4", "16"), (9, 3)),
        "blocks copied on write": (("4", "16"), (1, 1)),
    }
