"""Each invariant of the host tier finds a tier that breaks it, and names what is wrong."""

import dataclasses

import pytest

from pagedviz.engine.log.events.transfers import TierEvicted, TierTouched
from pagedviz.engine.log.host_snapshot import TierSnapshot
from pagedviz.engine.log.invariants import host_tier
from tests.engine.host_tier.tier_cases import WatchedTier


def state() -> TierSnapshot:
    """Chunk 0 "a" is loaded to block 20 by transfer 2, chunk 1 "b" is ready, chunk 2 "c" is stored from block 12 by
    transfer 3, chunk 3 is free."""
    tier = WatchedTier(4)
    tier.stored("a", "b")
    tier.begin_load({"a": 20})
    tier.begin_store({"c": 12})
    return tier.snapshot()


NOTHING = TierTouched(block_hashes=("c",))  # it is the most recent one already


def with_chunk(chunk: int, **changes: object) -> TierSnapshot:
    good = state()
    return dataclasses.replace(good, chunks={**good.chunks, chunk: dataclasses.replace(good.chunks[chunk], **changes)})


def with_transfer(number: int, **changes: object) -> TierSnapshot:
    good = state()
    transfer = dataclasses.replace(good.transfers[number], **changes)
    return dataclasses.replace(good, transfers={**good.transfers, number: transfer})


def without_chunk(chunk: int) -> TierSnapshot:
    good = state()
    return dataclasses.replace(good, chunks={c: held for c, held in good.chunks.items() if c != chunk})


def test_good_tier_breaks_nothing():
    assert host_tier.broken(state(), NOTHING, state()) == []


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (
            dataclasses.replace(state(), freed=(1,)),
            "chunks_add_up: chunk 1 is there 2 times, free or in use, and the tier has 4",
        ),
        (without_chunk(1), "chunks_add_up: chunk 1 is there 0 times, free or in use, and the tier has 4"),
        (
            dataclasses.replace(state(), freed=(4,)),
            "chunks_add_up: chunk 4 is there 1 times, free or in use, and the tier has 4",
        ),
        (with_chunk(1, block_hash="a"), "found_once: a is held 2 times and found 1 times"),
        (dataclasses.replace(state(), recency=("a", "c")), "found_once: b is held 1 times and found 0 times"),
        (dataclasses.replace(state(), recency=tuple("abcd")), "found_once: d is held 0 times and found 1 times"),
        (with_chunk(0, state="failed"), "found_once: a is held 0 times and found 1 times"),
        (with_chunk(0, state="ready", pins=0), "pins_are_loads: chunk 0 has 0 pins, and 1 loads read it"),
        (with_chunk(1, state="loading", pins=1), "pins_are_loads: chunk 1 has 1 pins, and 0 loads read it"),
        (with_chunk(2, state="ready"), "pins_are_loads: chunk 2 is ready, and 1 stores fill it"),
        (with_chunk(1, state="pending"), "pins_are_loads: chunk 1 is pending, and 0 stores fill it"),
        (with_chunk(0, state="ready"), "pins_are_loads: chunk 0 is ready with 1 pins"),
        (with_chunk(0, block_hash="x"), "transfers_keep_chunks: load 2 copies a, and chunk 0 no longer holds it"),
        (without_chunk(2), "transfers_keep_chunks: store 3 copies c, and chunk 2 no longer holds it"),
        (
            dataclasses.replace(state(), held_device_blocks=frozenset({20})),
            "device_blocks_held: device block 12 is not held, and 1 transfers copy it",
        ),
        (
            dataclasses.replace(state(), held_device_blocks=frozenset({12, 20, 7})),
            "device_blocks_held: device block 7 is held, and 0 transfers copy it",
        ),
        (
            with_transfer(2, device_blocks=(12,)),
            "device_blocks_held: device block 12 is held, and 2 transfers copy it",
        ),
    ],
)
def test_broken_tier_is_named(broken, sentence):
    assert sentence in host_tier.broken(broken, NOTHING, broken)


@pytest.mark.parametrize(("block_hash", "chunk", "what"), [("a", 0, "loading"), ("c", 2, "pending")])
def test_eviction_of_what_is_in_flight_is_named(block_hash, chunk, what):
    broken = host_tier.broken(state(), TierEvicted(block_hash, chunk), state())
    assert f"only_idle_evicted: {block_hash} was evicted while it was {what}" in broken


def test_hit_before_its_store_has_finished_is_named():
    early = with_chunk(2, state="ready")
    assert "finished_stores_are_hits: chunk 2 is ready, and no store of it has finished" in host_tier.broken(
        state(), NOTHING, early
    )


def test_change_without_an_event_is_named():
    silent = dataclasses.replace(state(), recency=tuple("bac"))
    assert host_tier.broken(state(), NOTHING, silent) == ["replay_agrees: replaying TierTouched gives another tier"]
