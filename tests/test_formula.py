"""Every step's formula has the step's own numbers, and is true."""

import re

import pytest

from pagedviz import formula
from pagedviz.engine.events import Event, TokensWritten
from pagedviz.play import planner
from pagedviz.scenario import CacheConfig
from tests.test_trace import CACHED, RUN, SERVED, happenings


def played():
    for run in (RUN, CACHED, SERVED):
        for h in happenings(run):
            yield h.event, formula.lines(run.cache, h.before, h.event, h.snapshot, h.refused)


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
            ["slot = block_table[3 // 2] × 2 + 3 % 2", "     = block_table[1] × 2 + 1", "     = 2 × 2 + 1 = 5"],
        ),
        (
            "TokensWritten",
            [
                "slot = block_table[position // block_size]",
                "       × block_size + position % block_size",
                "0 … 1 → block 0, slot 0 … 1",
                "2 → block 1, slot 2",
            ],
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
        ("BlockCached", ["hash(salt, tokens 0 … 1)", "= 3498bded"]),
        (
            "BlockHit",
            [
                "block_table[0] = 0, hash 3498bded",
                "ref_count[0] = 1 + 1 = 2",
                "cached = 2 of at most 3 − 1 tokens",
            ],
        ),
        ("BlockCollapsed", ["block_table[1]: 2 → 1", "ref_count[1] = 1 + 1 = 2", "free_queue = [2]"]),
        ("BlockEvicted", ["hash 5acdba45 → none", "cached = 1 blocks"]),
        ("OperationRefused", ["needed = 1", "free = 0", "total = 3"]),
    ],
)
def test_formula_has_the_numbers_of_the_step(kind, lines):
    assert lines_of(kind) == lines


@pytest.mark.parametrize(
    ("position", "slots", "lines"),
    [
        (0, (28, 29), ["0 … 1 → block 7, slot 28 … 29"]),
        (3, (31, 8, 9, 10, 11, 20), ["3 → block 7, slot 31", "4 … 7 → block 2, slot 8 … 11", "8 → block 5, slot 20"]),
        (4, (8, 9, 10, 11), ["4 … 7 → block 2, slot 8 … 11"]),
        (6, (10, 11, 20, 21), ["6 … 7 → block 2, slot 10 … 11", "8 … 9 → block 5, slot 20 … 21"]),
    ],
)
def test_tokens_written_at_once_are_told_block_by_block(position, slots, lines):
    event = TokensWritten("A", position, tuple(slots), slots, engine_step=0)
    base = planner(CacheConfig(block_size=4), 0).base
    assert formula.lines(CacheConfig(block_size=4), base, event, base, None)[2:] == lines


@pytest.mark.parametrize(("num_blocks", "last"), [(8, "28 … 31 → block 7, slot 28 … 31"), (10, "and 3 more blocks")])
def test_a_long_write_tells_its_first_blocks_and_counts_the_others(num_blocks, last):
    slots = tuple(range(4 * num_blocks))
    event = TokensWritten("A", 0, slots, slots, engine_step=0)
    base = planner(CacheConfig(block_size=4), 0).base
    lines = formula.lines(CacheConfig(block_size=4), base, event, base, None)[2:]
    assert (len(lines), lines[-1]) == (8, last)


def test_every_sum_in_a_formula_is_true():
    sums = [line for _, lines in played() for line in lines if re.search(r"[\d] [×+−] .* = ", line)]
    assert len(sums) >= 8
    for line in sums:
        *_, left, right = line.split(" = ")
        assert eval(left.replace("×", "*").replace("−", "-")) == int(right.replace(",", "")), line
