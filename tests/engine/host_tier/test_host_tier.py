"""The host tier, by hand: hashes as letters or numbers, device blocks from 10 on."""

import pytest

from pagedviz.engine.log import errors
from pagedviz.engine.log.events.transfers import (
    TierEvicted,
    TierLoadFailed,
    TierStoreBegun,
    TierStoreFailed,
    TierTouched,
)
from pagedviz.engine.policies.host_writes import Offer, on_second_hit, write_back, write_through
from tests.engine.host_tier.tier_cases import WatchedTier
from tests.engine.radix.radix_cases import refused


def test_S42_chunks_are_given_evicted_pinned_refused_and_given_back():
    """Printed by vLLM 0.33.0."""
    tier = WatchedTier(3)
    first = tier.begin_store({1: 11, 2: 12})
    assert tier.chunks == {1: (0, "pending", 0), 2: (1, "pending", 0)}
    tier.finish(first.transfer_id)
    assert tier.stored(3) == (2,)
    assert tier.chunks == {1: (0, "ready", 0), 2: (1, "ready", 0), 3: (2, "ready", 0)}

    tier.touch([1])
    assert tier.stored(4) == (1,)
    assert tier.chunks == {1: (0, "ready", 0), 3: (2, "ready", 0), 4: (1, "ready", 0)}

    load = tier.begin_load({3: 13})
    store = tier.begin_store({5: 15, 6: 16})
    assert tier.events[-3:-1] == [TierEvicted(1, chunk=0), TierEvicted(4, chunk=1)]
    assert tier.chunks == {3: (2, "loading", 1), 5: (1, "pending", 0), 6: (0, "pending", 0)}

    with refused(tier, errors.TooFewChunks, needed=3, free=0, evictable=0, total=3):
        tier.begin_store({7: 17, 8: 18, 9: 19})

    tier.fail(store.transfer_id)
    assert (tier.longest_run([5]), tier.longest_run([6]), tier.longest_run([3])) == (0, 0, 1)
    assert tier.chunks == {3: (2, "loading", 1)}

    tier.finish(load.transfer_id)
    assert tier.chunks == {3: (2, "ready", 0)}
    store = tier.begin_store({7: 17, 8: 18, 9: 19})
    assert tier.events[-2] == TierEvicted(3, chunk=2)
    assert tier.chunks == {7: (2, "pending", 0), 8: (0, "pending", 0), 9: (1, "pending", 0)}


# --- look-up ---


def test_longest_run_ends_at_the_first_gap():
    tier = WatchedTier(4)
    tier.stored("a", "b", "d")
    assert [tier.longest_run(asked) for asked in ("abcd", "abd", "cd", "da", "")] == [2, 3, 0, 2, 0]


def test_pending_store_is_no_hit():
    tier = WatchedTier(3)
    tier.stored("a", "c")
    store = tier.begin_store({"b": 11})
    assert tier.longest_run("abc") == 1
    with refused(tier, errors.NotReady, block_hash="b", state="pending"):
        tier.begin_load({"a": 20, "b": 21})
    tier.finish(store.transfer_id)
    assert tier.longest_run("abc") == 3


def test_block_being_loaded_is_a_hit_for_others():
    tier = WatchedTier(2)
    tier.stored("a")
    one = tier.begin_load({"a": 20})
    assert tier.longest_run("a") == 1
    other = tier.begin_load({"a": 21})
    assert tier.chunks == {"a": (0, "loading", 2)}
    tier.finish(one.transfer_id)
    assert tier.chunks == {"a": (0, "loading", 1)}
    tier.finish(other.transfer_id)
    assert tier.chunks == {"a": (0, "ready", 0)}


def test_look_up_that_never_loads_leaves_no_pin_and_is_no_use():
    tier = WatchedTier(2)
    tier.stored("a")
    tier.stored("b")
    with_both = tier.snapshot()
    for _ in range(3):
        assert tier.longest_run("ab") == 2
    assert tier.snapshot() == with_both
    tier.stored("c", "d")
    assert tier.events[-4:-2] == [TierEvicted("a", chunk=0), TierEvicted("b", chunk=1)]


def test_what_was_evicted_after_the_look_up_is_not_loaded():
    tier = WatchedTier(2)
    tier.stored("a", "b")
    assert tier.longest_run("ab") == 2
    tier.stored("c")
    with refused(tier, errors.NotReady, block_hash="a", state="absent"):
        tier.begin_load({"b": 20, "a": 21})


# --- store ---


def test_store_gives_chunks_to_what_is_not_there_yet_only():
    tier = WatchedTier(4)
    tier.stored("a")
    pending = tier.begin_store({"b": 11})
    store = tier.begin_store({"a": 10, "b": 11, "c": 12, "d": 13})
    assert (store.block_hashes, store.device_blocks, store.chunks) == (("c", "d"), (12, 13), (2, 3))
    assert tier.events[-1] == TierStoreBegun(store.transfer_id, ("c", "d"), (12, 13), (2, 3))
    reported = len(tier.events)
    assert tier.begin_store({"a": 10, "b": 11, "c": 12}) is None
    assert tier.begin_store({}) is None
    assert len(tier.events) == reported
    tier.finish(pending.transfer_id)
    assert tier.longest_run("abc") == 2


def test_store_evicts_nothing_that_was_given_with_it():
    """A chain of three, the first of which is on the host and was used the longest time ago: it stays a chain."""
    tier = WatchedTier(3)
    tier.stored("a")
    tier.stored("x", "y")
    store = tier.begin_store({"a": 10, "b": 11, "c": 12})
    assert tier.events[-3:-1] == [TierEvicted("x", chunk=1), TierEvicted("y", chunk=2)]
    tier.finish(store.transfer_id)
    assert tier.longest_run("abc") == 3
    with refused(tier, errors.TooFewChunks, needed=1, free=0, evictable=0, total=3):
        tier.begin_store(dict(zip("abcd", range(10, 14), strict=True)))


def test_store_is_refused_whole_when_one_chunk_is_missing():
    tier = WatchedTier(4)
    tier.stored("a", "b", "c")
    load = tier.begin_load({"b": 20})
    with refused(tier, errors.TooFewChunks, needed=4, free=1, evictable=2, total=4):
        tier.begin_store(dict(zip("wxyz", range(10, 14), strict=True)))
    assert tier.longest_run("abc") == 3
    assert tier.stored("w", "x", "y") == (3, 2, 0)
    assert tier.longest_run("b") == 1
    tier.finish(load.transfer_id)


def test_chunks_never_used_go_out_first_then_the_last_freed():
    tier = WatchedTier(4)
    store = tier.begin_store({"a": 10, "b": 11})
    tier.fail(store.transfer_id)
    assert tier.snapshot().free_chunks == (2, 3, 1, 0)
    assert tier.stored("c", "d", "e") == (2, 3, 1)


def test_pending_store_is_not_evicted():
    tier = WatchedTier(2)
    store = tier.begin_store({"a": 10})
    tier.stored("b")
    assert tier.stored("c") == (1,)
    assert tier.events[-3] == TierEvicted("b", chunk=1)
    with refused(tier, errors.TooFewChunks, needed=2, free=0, evictable=1, total=2):
        tier.begin_store({"d": 13, "e": 14})
    tier.finish(store.transfer_id)
    assert tier.stored("d", "e") == (1, 0)


@pytest.mark.parametrize("end", [WatchedTier.fail, WatchedTier.cancel])
def test_store_that_came_to_nothing_leaves_nothing_behind(end):
    tier = WatchedTier(2)
    store = tier.begin_store({"a": 10, "b": 11})
    end(tier, store.transfer_id)
    assert tier.longest_run("a") == 0
    assert tier.chunks == {}
    assert tier.held_device_blocks == set()
    assert tier.stored("a", "b", block=10) == (1, 0)
    assert tier.longest_run("ab") == 2


# --- load ---


def test_block_being_loaded_is_not_evicted():
    tier = WatchedTier(2)
    tier.stored("a")
    tier.stored("b")
    load = tier.begin_load({"a": 20})
    assert tier.stored("c") == (1,)
    with refused(tier, errors.TooFewChunks, needed=2, free=0, evictable=1, total=2):
        tier.begin_store({"d": 13, "e": 14})
    tier.finish(load.transfer_id)
    assert tier.stored("d") == (0,)


@pytest.mark.parametrize("end", [WatchedTier.finish, WatchedTier.fail, WatchedTier.cancel])
def test_every_way_out_of_a_load_gives_up_its_pins_and_its_device_blocks(end):
    tier = WatchedTier(2)
    tier.stored("a", "b")
    load = tier.begin_load({"a": 20, "b": 21})
    assert tier.chunks == {"a": (0, "loading", 1), "b": (1, "loading", 1)}
    assert tier.held_device_blocks == {20, 21}
    end(tier, load.transfer_id)
    assert tier.held_device_blocks == set()
    assert len(tier.stored("c", "d")) == 2
    assert tier.longest_run("cd") == 2


def test_load_is_refused_whole_when_one_block_is_missing():
    tier = WatchedTier(3)
    tier.stored("a", "b")
    with refused(tier, errors.NotReady, block_hash="c", state="absent"):
        tier.begin_load({"a": 20, "b": 21, "c": 22})
    assert tier.held_device_blocks == set()
    assert tier.begin_load({}) is None


def test_cancelled_load_leaves_a_hit_and_a_failed_one_does_not():
    tier = WatchedTier(2)
    tier.stored("a")
    tier.cancel(tier.begin_load({"a": 20}).transfer_id)
    assert tier.chunks == {"a": (0, "ready", 0)}
    tier.fail(tier.begin_load({"a": 20}).transfer_id)
    assert tier.longest_run("a") == 0
    assert tier.snapshot().free_chunks == (1, 0)


def test_chunk_that_failed_is_free_when_the_last_load_lets_go():
    tier = WatchedTier(2)
    tier.stored("a")
    one, other = tier.begin_load({"a": 20}), tier.begin_load({"a": 21})
    tier.fail(one.transfer_id)
    assert tier.longest_run("a") == 0
    assert tier.snapshot().chunks[0].state == "failed"
    assert tier.snapshot().free_chunks == (1,)
    tier.finish(other.transfer_id)
    assert tier.events[-1].freed == (0,)
    assert tier.snapshot().free_chunks == (1, 0)


def test_copy_stored_anew_stays_when_an_old_load_of_it_fails_too():
    tier = WatchedTier(2)
    tier.stored("a")
    one, other = tier.begin_load({"a": 20}), tier.begin_load({"a": 21})
    tier.fail(one.transfer_id)
    assert tier.stored("a") == (1,)
    tier.fail(other.transfer_id)
    assert tier.events[-1] == TierLoadFailed(other.transfer_id, ("a",), (21,), (0,), freed=(0,))
    assert tier.chunks == {"a": (1, "ready", 0)}


# --- touch ---


def test_touch_keeps_the_head_of_a_chain_longest():
    tier = WatchedTier(3)
    tier.stored("a", "b")
    tier.stored("x")
    tier.touch("abcd")
    assert tier.events[-1] == TierTouched(("a", "b"))
    assert tier.snapshot().recency == ("x", "b", "a")
    tier.stored("y")
    tier.stored("z")
    assert [event.block_hash for event in tier.events if isinstance(event, TierEvicted)] == ["x", "b"]


def test_touch_of_nothing_that_is_there_is_nothing():
    tier = WatchedTier(1)
    tier.touch("ab")
    tier.touch("")
    assert tier.events == []


# --- device blocks ---


def test_device_blocks_are_held_until_their_transfer_ends():
    tier = WatchedTier(4)
    tier.stored("a", "b")
    store = tier.begin_store({"a": 10, "c": 12, "d": 13})
    assert tier.held_device_blocks == {12, 13}
    load = tier.begin_load({"a": 20, "b": 21})
    assert tier.held_device_blocks == {12, 13, 20, 21}
    tier.finish(store.transfer_id)
    assert tier.held_device_blocks == {20, 21}
    tier.finish(load.transfer_id)
    assert tier.held_device_blocks == set()


def test_device_block_is_in_one_transfer_at_a_time():
    tier = WatchedTier(6)
    tier.stored("a", "b")
    tier.begin_store({"c": 12})
    tier.begin_load({"a": 20})
    for block in (12, 20):
        with refused(tier, errors.BlockInTransfer, block=block):
            tier.begin_store({"x": 14, "y": block})
        with refused(tier, errors.BlockInTransfer, block=block):
            tier.begin_load({"a": 21, "b": block})
    with refused(tier, errors.BlockInTransfer, block=14):
        tier.begin_store({"x": 14, "y": 14})


def test_transfer_ends_once():
    tier = WatchedTier(2)
    tier.stored("a")
    load, store = tier.begin_load({"a": 20}), tier.begin_store({"b": 11})
    tier.cancel(load.transfer_id)
    for end in (tier.finish, tier.fail, tier.cancel):
        with refused(tier, errors.UnknownTransfer, transfer_id=load.transfer_id, known=[store.transfer_id]):
            end(load.transfer_id)


# --- when a block is offered ---

LIFE = [Offer("computed", 1), Offer("hit", 2), Offer("hit", 3), Offer("evicted", 3)]


@pytest.mark.parametrize(
    ("policy", "offered"),
    [
        (write_through, [True, True, True, False]),
        (on_second_hit, [False, True, True, False]),
        (write_back, [False, False, False, True]),
    ],
)
def test_policies_disagree_about_when_a_block_is_offered(policy, offered):
    assert [policy(offer) for offer in LIFE] == offered


def test_block_nobody_hit_is_stored_by_two_policies():
    life = [Offer("computed", 1), Offer("evicted", 1)]
    assert [any(map(policy, life)) for policy in (write_through, on_second_hit, write_back)] == [True, False, True]


# --- words ---


def test_every_event_says_its_sentence():
    tier = WatchedTier(2)
    tier.fail(tier.begin_store({"a": 10, "b": 11}).transfer_id)
    tier.cancel(tier.begin_store({"a": 10}).transfer_id)
    tier.stored("a")
    tier.stored("b")
    tier.touch("a")
    tier.stored("c")
    for end in (tier.finish, tier.cancel, tier.fail):
        end(tier.begin_load({"a": 20}).transfer_id)
    assert tier.events[1] == TierStoreFailed(1, ("a", "b"), (10, 11), (0, 1))
    assert tier.events[1].sentence == (
        "Store 1 failed. None of [a, b] is on the host. Host chunks [0, 1] are free, and device blocks [10, 11] are no "
        "longer held."
    )
    assert tier.events[-1].sentence == (
        "Load 8 failed. Host chunks [1] could not be read, so [a] can no longer be found there. Each chunk has one pin "
        "less, which freed 1 failed chunk."
    )
    assert len({event.kind for event in tier.events}) == 10
    assert not any("{" in event.sentence or event.sentence.startswith(event.kind) for event in tier.events)
