"""Every step's formula has the step's own numbers, and is true."""

import dataclasses
import functools
import re

import pytest

from pagedviz import formulas
from pagedviz.engine.log.events.base import Event
from pagedviz.engine.log.events.blocks import TokensWritten
from pagedviz.engine.log.events.requests import BeamsChosen, RequestForked, TokensSampled
from pagedviz.engine.log.snapshot import RequestState
from pagedviz.formulas.base import block_bytes
from pagedviz.run.play import planner
from pagedviz.scenario.settings import CacheConfig
from tests.run.run_cases import PROMPT, RUNS, SERVING, happenings


def branched():
    """Requests of several sequences. The sums come from a model, so the test makes them up."""
    cache = CacheConfig(block_size=4)
    base = planner(cache, 0).base
    request = RequestState(
        PROMPT, {"A.1": ("x",), "A.2": ("y",)}, 5, 0, None, beams=2, scores={"A.1": -0.5, "A.2": -1.2504}
    )
    before = dataclasses.replace(base, requests={"A": request})
    outputs = {"A.1": ("y", "u"), "A.2": ("y", "v")}
    after = dataclasses.replace(base, requests={"A": request._replace(outputs=outputs)})
    for event in (
        RequestForked("A", ("A.1", "A.2")),
        BeamsChosen("A", ("A.1", "A.2"), ("A.2", "A.2"), ("u", "v"), (-2.0006, -2.75), ("A.1",), "said"),
        TokensSampled(("A.1",), (("y", "u"),), "said"),
    ):
        yield event, formulas.lines(cache, before, event, after, None)


def event_lines(run):
    for h in happenings(run):
        yield h.event, formulas.lines(run.cache, h.before, h.event, h.snapshot, h.refused)


@functools.cache
def played():
    return [each for run in RUNS for each in event_lines(run)]


def lines_of(kind):
    return next(lines for event, lines in played() if event.kind == kind)


def lines_in(case, kind, **fields):
    return next(
        lines
        for event, lines in event_lines(SERVING[case])
        if event.kind == kind and vars(event).items() >= fields.items()
    )


def test_every_kind_of_event_has_a_formula():
    without = set(Event.kinds) - {event.kind for event, lines in played() if lines}
    assert not without, f"no run of tests/run/run_cases.py shows a formula of {sorted(without)}"


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


BELOW = ["first position seen = 9 − 4 + 1 = 6", "blocks below = floor(6 / 4) = 1"]
HASHES = ("761625a1", "724c4cee")  # of the prompt's two full blocks


@pytest.mark.parametrize(
    ("case", "kind", "fields", "lines"),
    [
        (
            "window",
            "BlockOutOfWindow",
            {},
            [*BELOW, "block_table[0]: 1 → 0, the null block", "ref_count[1] = 1 − 1 = 0"],
        ),
        ("two blocks more", "NullBlockTaken", {}, ["free_queue[0] = 5", "free = 7 − 1 = 6"]),
        (
            "two blocks more",
            "BlockOutOfWindow",
            {},
            [
                *["full blocks = floor(18 / 4) = 4", "kept = floor(4 / 4) + 2 = 3", "blocks released = 4 − 3 = 1"],
                *["block_table[0]: 0 → 5, the null block", "ref_count[0] = 1 − 1 = 0"],
            ],
        ),
        ("groups", "SequenceAdded", {}, ["blocks in each of 2 groups = ceil(9 / 4) = 3", "free = 11"]),
        (
            "groups",
            "BlockAllocated",
            {"group": 1},
            ["group 1, layer 1: window 4", "free_queue[0] = 4", "block_table[0] = 4"],
        ),
        (
            "groups",
            "PrefixSkipped",
            {},
            [
                *["group 1, layer 1: window 4", "tokens that every group agrees on = 8"],
                *["first position seen = 8 − 4 + 1 = 5", "blocks below = floor(5 / 4) = 1"],
                *["block_table[0] = 0, the null block", "tokens without a block = 1 × 4 = 4"],
            ],
        ),
        (
            "groups",
            "BlockHit",
            {"group": 0},
            [
                *["group 0, layer 0: all tokens", f"block_table[0] = 1, hash {HASHES[0]}", "ref_count[1] = 1 + 1 = 2"],
                "cached = 4 of at most 9 − 1 tokens",
            ],
        ),
        (
            "groups",
            "BlockHit",
            {"group": 1},
            [
                *["group 1, layer 1: window 4", f"block_table[1] = 5, hash {HASHES[1]}", "ref_count[5] = 1 + 1 = 2"],
                "cached = 8 of 8 tokens that every group agrees on",
            ],
        ),
        (
            "drafts",
            "TokensDrafted",
            {},
            [
                *["slots = 1 + 3 = 4", "seq_len = 9 + 1 + 3 = 13", "blocks = ceil(13 / 4) = 4"],
            ],
        ),
        (
            "drafts",
            "DraftsVerified",
            {},
            ["accepted = 1 of 3 drafts", "blocks = ceil(11 / 4) = 3 of 4", "seq_len = 13 − 2 = 11"],
        ),
        ("dropped", "DraftsDropped", {}, ["drafts = 3 − 2 = 1"]),
        (
            "tier",
            "TierStoreBegun",
            {},
            [
                *[f"block 0 → chunk 0, hash {HASHES[0]}", f"block 1 → chunk 1, hash {HASHES[1]}"],
                *["bytes = 2 × 512 = 1,024", "free chunks = 1 of 3"],
            ],
        ),
        (
            "tier",
            "TierStoreFinished",
            {},
            ["device blocks that are free now = 0 of 2", "free chunks = 1 of 3", "unfinished transfers = 0"],
        ),
        ("touched", "TierTouched", {}, [f"recency ends with {HASHES[1]}, {HASHES[0]}"]),
        (
            "tier",
            "TierLoadBegun",
            {},
            [
                *[f"block 0 ← chunk 0, hash {HASHES[0]}", f"block 1 ← chunk 1, hash {HASHES[1]}"],
                *["bytes = 2 × 512 = 1,024", "free device blocks = 6 − 2 = 4"],
            ],
        ),
        (
            "tier",
            "TierLoadFailed",
            {},
            ["device blocks that are free now = 2 of 2", "free chunks = 3 of 3", "unfinished transfers = 0"],
        ),
        (
            "tier",
            "BlockLoaded",
            {},
            [
                *[f"hash of block 5 = {HASHES[1]}", "ref_count[5] = 1 − 1 = 0", "free_queue[4] = 5"],
                "cached = 3 blocks",
            ],
        ),
        ("tier", "TierEvicted", {}, ["hash 14a0747c → none", "free chunks = 1 of 3"]),
    ],
)
def test_formula_of_windows_groups_drafts_and_the_host_tier(case, kind, fields, lines):
    assert lines_in(case, kind, **fields) == lines


def test_drafts_of_the_drafter_have_a_confidence():
    event, lines = next(
        (event, lines) for event, lines in event_lines(SERVING["dropped"]) if event.kind == "TokensDrafted"
    )
    assert lines[0] == "confidence = " + ", ".join(f"{confidence:.2f}" for confidence in event.confidences)


def test_a_step_tells_how_many_of_its_tokens_are_drafts_and_how_many_seats_are_taken():
    assert lines_in("dropped", "RequestScheduled", num_tokens=2)[:2] == [
        "known = 10, computed = 9, drafts = 1",
        "scheduled = 1 + 1 = 2",
    ]
    assert lines_in("beams", "RequestAdmitted") == ["running = [A]", "3 of at most 8 sequences"]
    assert lines_in("beams", "RequestSubmitted")[:2] == [
        "slots of each of 3 at most = 9 + 4 − 1 = 12",
        "blocks of each of 3 at most = ceil(12 / 4) = 3",
    ]


def test_preempted_request_has_the_blocks_of_all_its_sequences_and_never_the_null_block():
    lines = lines_in("beams make way", "RequestPreempted")
    assert lines == ["blocks = 4, of which it alone names 4", "tokens computed = 12"]
    (entries,) = {
        h.before.block_tables["B"]
        for h in happenings(SERVING["a window makes way"])
        if h.event.kind == "RequestPreempted"
    }
    assert entries == (0, 4, 5)
    assert lines_in("a window makes way", "RequestPreempted")[0] == "blocks = 2, of which it alone names 2"


def test_a_launch_tells_which_of_its_tokens_are_drafts_and_of_which_group_its_slots_are():
    assert lines_in("drafts", "TokensWritten", position=9)[0] == "A: 4 tokens, the last 3 drafts"
    assert lines_in("dropped", "TokensWritten", position=9)[0] == "A: 2 tokens, the last 1 draft"
    assert lines_in("groups", "TokensWritten")[0] == "group 0; each group has slots by a table of its own"


def test_a_block_of_a_group_has_the_bytes_of_that_groups_layers():
    cache = CacheConfig(profile="vllm-v1", groups=(None, 4))
    assert block_bytes(cache) == "2 × 1 × 4 × 1 × 8 × 4 = 256"


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("RequestForked", ["sequences = 2", "prompt's blocks = ceil(9 / 4) = 3"]),
        (
            "BeamsChosen",
            [
                "score = parent's score + log p",
                "A.1, “u” behind A.2: −1.250 − 0.751 = −2.001",
                "A.2, “v” behind A.2: −1.250 − 1.500 = −2.750",
            ],
        ),
        ("TokensSampled", ["outputs", "A.1: 2 of 5, 1 accepted and 1 new"]),
    ],
)
def test_formula_of_a_request_that_goes_on_as_several_sequences(kind, lines):
    assert next(found for event, found in branched() if event.kind == kind) == lines


@pytest.mark.parametrize(
    ("position", "slots", "lines"),
    [
        (0, (28, 29), ["0 … 1 → block 7, slot 28 … 29"]),
        (3, (31, 8, 9, 10, 11, 20), ["3 → block 7, slot 31", "4 … 7 → block 2, slot 8 … 11", "8 → block 5, slot 20"]),
        (4, (8, 9, 10, 11), ["4 … 7 → block 2, slot 8 … 11"]),
        (6, (10, 11, 20, 21), ["6 … 7 → block 2, slot 10 … 11", "8 … 9 → block 5, slot 20 … 21"]),
    ],
)
def test_tokens_written_at_once_are_listed_block_by_block(position, slots, lines):
    event = TokensWritten("A", position, tuple(slots), slots, engine_step=0)
    base = planner(CacheConfig(block_size=4), 0).base
    assert formulas.lines(CacheConfig(block_size=4), base, event, base, None)[2:] == lines


@pytest.mark.parametrize(("num_blocks", "last"), [(8, "28 … 31 → block 7, slot 28 … 31"), (10, "and 3 more blocks")])
def test_a_long_write_tells_its_first_blocks_and_counts_the_others(num_blocks, last):
    slots = tuple(range(4 * num_blocks))
    event = TokensWritten("A", 0, slots, slots, engine_step=0)
    base = planner(CacheConfig(block_size=4), 0).base
    lines = formulas.lines(CacheConfig(block_size=4), base, event, base, None)[2:]
    assert (len(lines), lines[-1]) == (8, last)


def test_every_sum_in_a_formula_is_true():
    sums = [line for _, lines in played() for line in lines if re.search(r"[\d] [×+−] .* = ", line)]
    assert len(sums) >= 12
    for line in sums:
        *_, left, right = line.replace("×", "*").replace("−", "-").split(" = ")
        assert eval(left.split(": ")[-1]) == pytest.approx(float(right.replace(",", ""))), line
