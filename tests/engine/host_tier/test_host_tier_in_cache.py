"""The host tier beside the cache: what is stored, held, loaded and hit again, and every way out of a transfer."""

import pytest

from pagedviz.engine.blocks.changes import caching
from pagedviz.engine.log.errors import (
    BlockInTransfer,
    BlocksInUse,
    NoFreeBlocks,
    NoHostTier,
    NoRoomToLoad,
    NothingToLoad,
    NothingToStore,
)
from tests.engine.engine_cases import Watched, refused
from tests.engine.requests.request_cases import WatchedScheduler

PROMPT = list(range(12))


def tiered(num_blocks: int = 6, host_chunks: int = 4, host_write: str = "when_asked", **settings) -> Watched:
    settings |= {"host_chunks": host_chunks, "host_write": host_write, "prefix_caching": True}
    return Watched(num_blocks, profile="vllm-v1", **settings)


def stored(**settings) -> Watched:
    """PROMPT is on the host alone."""
    cache = tiered(**settings)
    cache.add("a", PROMPT)
    cache.store("a")
    cache.finish_transfers()
    cache.free("a")
    sweep(cache)
    return cache


def sweep(cache: Watched) -> None:
    """Hand out every free block for other tokens."""
    cache.add("other", [f"o{i}" for i in range(4 * len(cache.free_blocks))])
    cache.free("other")


def chunks(cache: Watched) -> dict[str, str]:
    """Of each hash on the host its state."""
    return {str(held.block_hash)[:8]: held.state for held in cache.snapshot().tier.chunks.values()}


# --- store ---


def test_a_store_holds_its_device_blocks_until_it_ends():
    cache = tiered()
    cache.add("a", PROMPT)
    store = cache.store("a")
    cache.free("a")
    assert store.device_blocks == (1, 2, 3)
    assert cache.snapshot().pinned == (1, 2, 3)
    assert cache.free_blocks == [4, 5]
    with refused(cache, NoFreeBlocks, seq_id="b", needed=3, free=2, total=5):
        cache.add("b", "x" * 9)
    cache.end_transfer(store.transfer_id, "finish")
    # The tail goes out before the head.
    assert cache.free_blocks == [4, 5, 3, 2, 1]


@pytest.mark.parametrize("how", ["fail", "cancel"])
def test_what_was_not_stored_is_not_there_and_nothing_stays_held(how):
    cache = tiered()
    cache.add("a", PROMPT)
    cache.end_transfer(cache.store("a").transfer_id, how)
    assert chunks(cache) == {}
    assert cache.snapshot().pinned == ()
    assert cache.host_tier.host_links == {}
    cache.store("a")


def test_a_block_that_is_still_being_stored_is_no_hit_on_the_host():
    cache = tiered()
    cache.add("a", PROMPT)
    cache.store("a")
    for block in (3, 2, 1):
        caching.evict(cache.state, block, "of the test")
    with refused(cache, NothingToLoad, hit=0):
        cache.load([*PROMPT, "x"])


def test_only_whole_blocks_with_a_hash_are_stored_and_each_once():
    cache = tiered()
    cache.add("a", range(10))
    assert cache.store("a").device_blocks == (1, 2)
    with refused(cache, NothingToStore, seq_id="a", cached=2):
        cache.store("a")
    cache.finish_transfers()
    with refused(cache, NothingToStore, seq_id="a", cached=2):
        cache.store("a")


def test_a_spill_leaves_what_is_being_stored_and_a_second_one_takes_it():
    cache = tiered(fork=True)
    cache.add("a", range(8))
    store = cache.store("a")
    with refused(cache, BlockInTransfer, block=1):
        cache.spill("a")
    cache.end_transfer(store.transfer_id, "finish")
    cache.spill("a")
    assert cache.table == {"a": [None, None]}


# --- load ---


def test_what_was_loaded_is_hit_as_if_it_had_never_left():
    cache = stored()
    assert cache.longest_prefix([*PROMPT, "x"]) == []
    cache.load([*PROMPT, "x"])
    assert chunks(cache) == dict.fromkeys(chunks(cache), "loading")
    assert cache.longest_prefix([*PROMPT, "x"]) == []
    held = cache.snapshot().pinned
    cache.finish_transfers()
    assert cache.free_blocks[-3:] == list(reversed(held))
    cache.add("b", [*PROMPT, "x"])
    assert cache.table["b"][:3] == list(held)


def test_one_token_at_least_is_computed():
    cache = stored()
    cache.load(PROMPT)
    assert len(cache.snapshot().pinned) == 2


def test_a_load_takes_no_block_that_the_same_prompt_hits():
    cache = stored(host_chunks=6)
    cache.add("b", PROMPT[:5])
    cache.free("b")
    cache.add("c", [f"c{i}" for i in range(16)])
    cache.free("c")
    hit = cache.longest_prefix([*PROMPT, "x"])
    assert hit == cache.free_blocks[:1]
    cache.load([*PROMPT, "x"])
    assert not set(hit) & set(cache.snapshot().pinned)
    cache.finish_transfers()
    assert len(cache.longest_prefix([*PROMPT, "x"])) == 3


@pytest.mark.parametrize(("how", "found"), [("fail", 0), ("cancel", 3)])
def test_a_load_that_does_not_finish_gives_its_blocks_back_unhit(how, found):
    cache = stored()
    cache.load([*PROMPT, "x"])
    cache.end_transfer(cache.host_tier.tier.transfers[0].transfer_id, how)
    assert cache.longest_prefix([*PROMPT, "x"]) == []
    assert sorted(cache.free_blocks) == [1, 2, 3, 4, 5]
    assert len(cache.host_tier._on_host([*PROMPT, "x"], None)[1]) == found


def test_a_chunk_that_failed_for_one_load_is_not_lost_to_another_that_had_begun():
    cache = stored(num_blocks=8)
    cache.load([*PROMPT, "x"])
    cache.load([*PROMPT, "x"])
    first, second = (transfer.transfer_id for transfer in cache.host_tier.tier.transfers)
    cache.end_transfer(first, "fail")
    cache.end_transfer(second, "finish")
    assert len(cache.longest_prefix([*PROMPT, "x"])) == 3
    assert cache.host_tier.host_links == {}


def test_what_is_written_back_takes_no_chunk_of_what_is_loaded_in_its_place():
    cache = tiered(num_blocks=4, host_chunks=3, host_write="write_back")
    cache.add("a", PROMPT)
    cache.free("a")
    sweep(cache)
    assert len(cache.host_tier._on_host([*PROMPT, "x"], None)[1]) == 3
    cache.load([*PROMPT, "x"])
    cache.finish_transfers()
    assert len(cache.longest_prefix([*PROMPT, "x"])) == 3


def test_other_tokens_behind_another_prefix_or_salt_are_not_loaded():
    cache = stored()
    for prompt, salt in (([9, *PROMPT], None), ([*PROMPT, "x"], "s"), (PROMPT[4:], None)):
        with refused(cache, NothingToLoad, hit=0):
            cache.load(prompt, salt)


def test_a_load_that_finds_too_few_free_blocks_changes_nothing():
    cache = stored()
    cache.add("b", [f"b{i}" for i in range(12)])
    with refused(cache, NoRoomToLoad, needed=3, free=2, total=5):
        cache.load([*PROMPT, "x"])


# --- by themselves ---


def test_write_through_stores_what_is_computed_and_drafts_only_once_they_are_verified():
    cache = tiered(host_write="write_through", num_blocks=8)
    cache.add("a", range(6))
    assert [e.device_blocks for e in cache.events if e.kind == "TierStoreBegun"] == [(1,)]
    cache.draft("a", "next", [7, 8])
    cache.write(["a"])
    cache.verify("a", 1)
    assert len([e for e in cache.events if e.kind == "TierStoreBegun"]) == 1
    cache.append("a", ["more"])
    assert [e.device_blocks for e in cache.events if e.kind == "TierStoreBegun"] == [(1,), (2,)]


def test_write_back_stores_what_is_evicted_before_its_block_goes_out():
    cache = tiered(host_write="write_back")
    cache.add("a", PROMPT)
    cache.free("a")
    assert chunks(cache) == {}
    sweep(cache)
    kinds = [e.kind for e in cache.events if e.kind in ("TierStoreFinished", "BlockEvicted")]
    assert kinds[:6] == ["TierStoreFinished", "BlockEvicted"] * 3
    assert len(cache.host_tier._on_host([*PROMPT, "x"], None)[1]) == 3


def test_the_second_use_stores_and_the_first_does_not():
    cache = tiered(host_write="on_second_hit", num_blocks=8)
    cache.add("a", PROMPT)
    assert chunks(cache) == {}
    cache.add("b", PROMPT[:9])
    assert [e.device_blocks for e in cache.events if e.kind == "TierStoreBegun"] == [(1,), (2,)]


def test_a_failed_store_gets_its_next_chance_with_the_next_hit():
    cache = tiered(host_write="write_through", num_blocks=8)
    cache.add("a", range(4))
    cache.end_transfer(1, "fail")
    cache.append("a", [4])
    assert not cache.is_transferring
    cache.add("b", range(5))
    assert cache.is_transferring


def test_what_is_hit_before_it_is_filled_is_stored_after():
    scheduler = WatchedScheduler(12, host_chunks=8, host_write="on_second_hit")
    for name in "AB":
        scheduler.submit(name, range(5), 2)
    scheduler.step()
    kinds = [event.kind for event in scheduler.events]
    assert kinds.index("BlockHit") < kinds.index("BatchWritten") < kinds.index("TierStoreBegun")


def test_blocks_that_were_held_come_back_to_their_place_by_last_use():
    cache = tiered(num_blocks=8, free_order="least_recent_first")
    cache.add("a", range(4))
    cache.engine_step = 2
    cache.add("b", range(10, 14))
    cache.engine_step = 3
    cache.append("a", [4])
    cache.store("a")
    a, b = (cache.table[name][0] for name in "ab")
    for name in "ab":
        cache.free(name)
    cache.finish_transfers()
    assert cache.free_blocks.index(b) < cache.free_blocks.index(a)


def test_a_chain_loses_its_tail_first():
    cache = tiered(host_write="write_through", num_blocks=12, host_chunks=3)
    cache.add("a", PROMPT)
    cache.finish_transfers()
    cache.add("b", [7, 7, 7, 7])
    links = [link.short for link in cache.sequences["a"].links]
    assert [str(e.block_hash)[:8] for e in cache.events if e.kind == "TierEvicted"] == links[2:]


def test_reset_forgets_the_host_too_and_waits_for_no_transfer():
    cache = stored()
    cache.load([*PROMPT, "x"])
    with refused(cache, BlocksInUse, in_use=3):
        cache.reset_prefix_cache()
    cache.finish_transfers()
    cache.reset_prefix_cache()
    assert chunks(cache) == {}
    assert cache.host_tier.host_links == {}


def test_a_cache_without_a_tier_says_so():
    cache = Watched(8, profile="vllm-v1", prefix_caching=True)
    cache.add("a", PROMPT)
    for operation in (lambda: cache.store("a"), lambda: cache.load(PROMPT), lambda: cache.end_transfer(1, "finish")):
        with refused(cache, NoHostTier):
            operation()


# --- served ---


def served(**settings) -> WatchedScheduler:
    """A's prompt is on the host alone, and nobody runs."""
    scheduler = WatchedScheduler(6, host_chunks=8, host_write="write_through", **settings)
    scheduler.submit("A", PROMPT, 1)
    scheduler.step()
    scheduler.submit("other", [f"o{i}" for i in range(20)], 1)
    scheduler.step()
    scheduler.manager.finish_transfers()
    assert scheduler.manager.longest_prefix([*PROMPT, "x"]) == []
    return scheduler


def test_a_request_waits_for_its_prefix_from_the_host_and_computes_the_rest():
    scheduler = served()
    scheduler.submit("B", [*PROMPT, "x"], 2)
    assert scheduler.step() == {}
    assert scheduler.manager.is_transferring
    assert scheduler.step() == {"B": 1}


def test_who_waits_for_the_host_lets_others_pass():
    scheduler = served()
    scheduler.submit("B", [*PROMPT, "x"], 2)
    scheduler.submit("C", ["c"], 2)
    assert scheduler.step() == {"C": 1}
    assert scheduler.step() == {"C": 1, "B": 1}


def test_a_request_whose_load_fails_computes_all():
    scheduler = served()
    scheduler.submit("B", [*PROMPT, "x"], 2)
    scheduler.step()
    scheduler.manager.end_transfer(scheduler.manager.host_tier.tier.transfers[0].transfer_id, "fail")
    assert scheduler.step() == {"B": 13}


def test_one_load_serves_all_who_wait_for_it():
    scheduler = served()
    for name in "BC":
        scheduler.submit(name, [*PROMPT, "x"], 2)
    scheduler.step()
    assert [event.kind for event in scheduler.events].count("TierLoadBegun") == 1
    assert set(scheduler.step()) == {"B", "C"}
