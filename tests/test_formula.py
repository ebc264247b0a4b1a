"""Every step's formula has the step's own numbers, and is true."""

import re

import pytest

from pagedviz import formula
from pagedviz.engine.events import Event
from pagedviz.play import Player
from tests.test_trace import RUN


def played():
    player, before = Player(RUN.cache, RUN.seed, lambda seq_id: "x"), None
    before = player.base
    for op in RUN.ops:
        for happening in player.perform(op):
            yield (
                happening.event,
                formula.lines(RUN.cache, before, happening.event, happening.snapshot, happening.refused),
            )
            before = happening.snapshot


def lines_of(kind):
    return next(lines for event, lines in played() if event.kind == kind)


def test_every_kind_of_event_has_a_formula():
    assert {event.kind for event, lines in played() if lines} == set(Event.kinds)


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("SequenceAdded", ["blocks = ceil(3 / 2) = 2", "free = 3"]),
        ("BlockAllocated", ["free_queue[0] = 0", "block_table[0] = 0"]),
        (
            "TokenWritten",
            ["slot = block_table[0 // 2] × 2 + 0 % 2", "     = block_table[0] × 2 + 0", "     = 0 × 2 + 0 = 0"],
        ),
        ("SequenceForked", ["entries = 2", "blocks taken = 0"]),
        ("BlockShared", ["block_table[0] = 0", "ref_count[0] = 1 + 1 = 2"]),
        ("WriteStopped", ["ref_count[1] = 2 > 1", "so copy first, then write"]),
        ("BlockCopied", ["filled slots 2 … 2 → 4 … 4", "bytes of a block = 2 × 2 × 2 × 1 × 8 × 4 = 256"]),
        ("EntryRewritten", ["block_table[1]: 1 → 2", "ref_count[1] = 2 − 1 = 1"]),
        ("BlockSpilled", ["device 2 → host 0", "bytes = 2 × 2 × 2 × 1 × 8 × 4 = 256"]),
        ("BlockReloaded", ["host 0 → device 2", "bytes = 2 × 2 × 2 × 1 × 8 × 4 = 256"]),
        ("BlockFreed", ["ref_count[1] = 1 − 1 = 0", "free_queue = [1]"]),
        ("BlockReleased", ["ref_count[0] = 2 − 1 = 1"]),
        ("SequenceFreed", ["free = 1 of 3 blocks"]),
        ("OperationRefused", ["needed = 1", "free = 0", "total = 3"]),
    ],
)
def test_formula_has_the_numbers_of_the_step(kind, lines):
    assert lines_of(kind) == lines


def test_every_sum_in_a_formula_is_true():
    sums = [line for _, lines in played() for line in lines if re.search(r"[\d] [×+−] .* = ", line)]
    assert len(sums) > 10
    for line in sums:
        *_, left, right = line.split(" = ")
        assert eval(left.replace("×", "*").replace("−", "-")) == int(right.replace(",", "")), line
