"""The ids that the real engines print: rows of `engine_scenarios.jsonl`, each with the engine that printed it.

A learner with that engine on the other screen sees the same numbers here.
"""

import pytest

from pagedviz.engine.blocks.pool import BlockPool
from pagedviz.engine.log.errors import BlockNotInUse
from pagedviz.engine.policies.free_orders import Freed, head_of_queue
from tests.engine.engine_cases import Watched
from tests.engine.requests.request_cases import WatchedScheduler

SIX = list("abcdef")


def caching(num_blocks: int, profile: str = "vllm-v1") -> Watched:
    return Watched(num_blocks, profile=profile, prefix_caching=True)


def used_and_freed() -> Watched:
    """S01: ten tokens came and went."""
    cache = caching(9)
    cache.add("a", range(10))
    assert cache.table == {"a": [1, 2, 3]}
    assert cache.ref_counts == {1: 1, 2: 1, 3: 1}
    assert cache.cached == {1, 2}
    assert cache.free_blocks == [4, 5, 6, 7, 8]
    cache.free("a")
    return cache


def test_S01_blocks_without_a_hash_go_before_the_head_and_cached_ones_to_the_end():
    """Printed by vLLM 0.33.0."""
    assert used_and_freed().free_blocks == [3, 4, 5, 6, 7, 8, 2, 1]


def test_S02_the_same_beginning_names_the_cached_blocks():
    """Printed by vLLM 0.33.0."""
    cache = used_and_freed()
    cache.add("b", [*range(10), 77])
    assert [e.block for e in cache.events if e.kind == "BlockHit"] == [1, 2]
    assert cache.events[-1].position == 8
    assert cache.table == {"b": [1, 2, 3]}
    assert cache.free_blocks == [4, 5, 6, 7, 8]


def test_S04_a_block_is_taken_by_the_token_that_needs_it_and_hashed_by_the_one_that_fills_it():
    """Printed by vLLM 0.33.0."""
    cache = caching(6)
    cache.add("a", range(4))
    for token in range(4, 10):
        cache.append("a", [token])
    written = {e.position: cache.table["a"][e.position // 4] for e in cache.events if e.kind.endswith("Written")}
    taken = [k for k, e in enumerate(cache.events) if e.kind == "BlockAllocated"]
    writes = [[e for e in cache.events[k:] if e.kind.endswith("Written")] for k in taken]
    assert [after[0].position for after in writes] == [0, 4, 8]
    assert [written[position] for position in (0, 4, 8)] == [1, 2, 3]
    assert cache.cached == {1, 2}
    assert cache.free_blocks == [4, 5]


def test_S08_a_salt_parts_what_is_equal():
    """Printed by vLLM 0.33.0. The salt enters the first hash only; the chain does the rest."""
    cache = caching(9)
    cache.add("a", range(9), salt="s1")
    assert [len(cache.longest_prefix(range(9), salt)) * 4 for salt in ("s1", "s2", None)] == [8, 0, 0]


def test_S18_a_preempted_sequence_finds_its_own_blocks_again():
    """Printed by vLLM 0.33.0, which frees what it preempts and admits it again with all of its tokens."""
    cache = caching(9)
    cache.add("a", range(10))
    for token in (10, 11, 12):
        cache.append("a", [token])
    cache.free("a")
    assert cache.free_blocks == [4, 5, 6, 7, 8, 3, 2, 1]
    cache.add("a", range(13))
    assert [e.block for e in cache.events if e.kind == "BlockHit"] == [1, 2, 3]
    assert cache.table == {"a": [1, 2, 3, 4]}


def test_S19_freed_blocks_go_before_the_head_of_the_queue_tail_first():
    """Printed by vLLM 0.33.0: ids from 1, as block 0 is the null block."""
    cache = Watched(9, profile="vllm-v1")
    cache.add("a", range(10))
    cache.add("b", range(5))
    assert cache.table == {"a": [1, 2, 3], "b": [4, 5]}
    cache.free("a")
    assert cache.free_blocks == [3, 2, 1, 6, 7, 8]
    cache.free("b")
    assert cache.free_blocks == [5, 4, 3, 2, 1, 6, 7, 8]


def test_S22_the_naive_allocator_counts_up_and_takes_blocks_back_last_first():
    """Printed by vLLM 0.6.4.post1."""
    cache = Watched(8)
    cache.add("p", range(10))
    assert cache.table == {"p": [0, 1, 2]}
    cache.free("p")
    assert cache.free_blocks == [2, 1, 0, 3, 4, 5, 6, 7]


def test_S23_the_child_copies_the_shared_tail_and_the_parent_then_writes_in_place():
    """Printed by vLLM 0.6.4.post1."""
    cache = Watched(8)
    cache.add("p", SIX)
    cache.fork("p", "c")
    assert cache.ref_counts == {0: 2, 1: 2}
    assert cache.free_blocks == [2, 3, 4, 5, 6, 7]
    cache.append("c", ["x"])
    assert cache.table == {"p": [0, 1], "c": [0, 2]}
    assert cache.ref_counts == {0: 2, 1: 1, 2: 1}
    cache.append("p", ["y"])
    assert cache.table == {"p": [0, 1], "c": [0, 2]}
    cache.free("p")
    assert cache.ref_counts == {0: 1, 2: 1}
    cache.free("c")
    assert cache.ref_counts == {}
    assert sorted(cache.free_blocks) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_S24_full_shared_blocks_are_never_copied():
    """Printed by vLLM 0.6.4.post1."""
    cache = Watched(8)
    cache.add("p", range(8))
    cache.fork("p", "c")
    cache.append("c", ["x"])
    cache.append("p", ["y"])
    assert cache.table == {"p": [0, 1, 3], "c": [0, 1, 2]}
    assert cache.ref_counts == {0: 2, 1: 2, 2: 1, 3: 1}
    assert not any(event.kind == "BlockCopied" for event in cache.events)


@pytest.mark.parametrize(
    ("profile", "tables", "ref_counts", "free"),
    [
        ("vllm-v0", {"p": [0, 1], "q": [0, 1]}, {0: 2, 1: 2}, [2, 3, 4, 5, 6, 7]),
        ("vllm-v1", {"p": [1, 2], "q": [1, 3]}, {1: 2, 2: 1, 3: 1}, [4, 5, 6, 7]),
    ],
)
def test_S27_a_block_filled_with_what_is_cached_already_is_collapsed_in_v0_and_kept_in_v1(
    profile, tables, ref_counts, free
):
    """Printed by vLLM 0.6.4.post1, and what its successor does instead."""
    cache = caching(8, profile)
    cache.add("p", range(7))
    cache.add("q", range(7))
    assert [row[1] - row[0] for row in cache.table.values()] == [1, 2]
    cache.append("p", [7])
    cache.append("q", [7])
    assert cache.table == tables
    assert cache.ref_counts == ref_counts
    assert cache.free_blocks == free


@pytest.mark.parametrize("first", ["p", "q"], ids=["S29", "S30"])
def test_S29_S30_the_least_recently_used_goes_out_first_and_of_one_time_the_deeper(first):
    """S29 printed by vLLM 0.6.4.post1. In S30, where q is freed first, it printed [3, 1, 2, 0]: it stops looking at the
    first newer block. Here the order is that of the last use, in whatever order they are freed."""
    cache = caching(4, "vllm-v0")
    for cache.engine_step, seq_id in enumerate("pq", 1):
        cache.add(seq_id, [f"{seq_id}{k}" for k in range(8)])
    cache.free(first)
    cache.free({"p": "q", "q": "p"}[first])
    cache.add("x", range(16))
    assert cache.table == {"x": [1, 0, 3, 2]}


def test_S37_freeing_a_block_twice_raises_and_leaves_the_counts():
    """Printed by vLLM 0.6.4.post1."""
    pool = BlockPool(8, range(8))
    block = pool.take()
    assert pool.release(block) == 0
    pool.put_back(Freed(block), head_of_queue)
    with pytest.raises(BlockNotInUse, match="Block 0 is free already"):
        pool.release(block)
    assert pool.ref_count == [0] * 8
    assert list(pool.free_blocks) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_S09_drafts_have_slots_and_no_hash_until_they_are_verified():
    """Printed by vLLM 0.33.0."""
    cache = caching(9)
    cache.admit("a", SIX, None, 6)
    cache.write(["a"])
    cache.propose("a", [7, 8, 9], [])
    cache.extend("a", ["sampled", 7, 8, 9])
    assert cache.table == {"a": [1, 2, 3]}
    assert cache.cached == {1}
    cache.write(["a"])
    cache.verify("a", 1)
    assert cache.snapshot().seq_len("a") == 8
    assert cache.cached == {1}
    cache.extend("a", ["bonus"])
    assert cache.table == {"a": [1, 2, 3]}
    assert cache.cached == {1, 2}


def test_S31_the_samples_of_a_prompt_share_its_blocks_until_they_write():
    """Printed by vLLM 0.6.4.post1."""
    scheduler = WatchedScheduler(10, profile="vllm-v0", prefix_caching=False)
    scheduler.submit("g", SIX, 3, samples=2)
    scheduler.step()
    assert scheduler.table == {"g.1": [0, 1], "g.2": [0, 1]}
    assert scheduler.snapshot().ref_counts == {0: 2, 1: 2}
    scheduler.step()
    copies = [(e.seq_id, e.source, e.target) for e in scheduler.events if e.kind == "BlockCopied"]
    assert copies == [("g.1", 1, 2)]
    assert scheduler.table == {"g.1": [0, 2], "g.2": [0, 1]}


def test_S34_slots_for_drafts_take_blocks_at_once():
    """Printed by vLLM 0.6.4.post1."""
    cache = Watched(20, profile="vllm-v0")
    cache.add("p", range(7))
    assert (len(cache.table["p"]), len(cache.free_blocks)) == (2, 18)
    cache.draft("p", 7, range(8, 13))
    assert (len(cache.table["p"]), len(cache.free_blocks)) == (4, 16)


def test_S35_a_window_keeps_its_blocks_and_two_and_takes_its_null_block_from_the_pool():
    """Printed by vLLM 0.6.4.post1."""
    cache = Watched(20, profile="vllm-v0", windows=[8])
    cache.add("p", range(8))
    for token in range(8, 20):
        cache.append("p", [token])
        assert 0 in cache.table["p"]
    cache.append("p", [20])
    assert cache.table == {"p": [2, 1, 3, 4, 5, 0]}
    assert cache.snapshot().null_block == 2


def test_S38_the_last_block_of_an_equal_prompt_is_computed_again_and_then_shared():
    """Printed by vLLM 0.6.4.post1."""
    cache = caching(8, "vllm-v0")
    cache.add("p", range(8))
    cache.add("q", range(8))
    assert cache.table == {"p": [0, 1], "q": [0, 1]}
    assert cache.ref_counts == {0: 2, 1: 2}
    assert [e.block for e in cache.events if e.kind == "BlockHit"] == [0]


def test_S39_nano_puts_every_block_at_the_end_and_hits_it_there():
    """Printed by nano-vllm bb823b3."""
    cache = caching(8, "nano-vllm")
    cache.add("a", range(10))
    cache.free("a")
    assert cache.free_blocks == [3, 4, 5, 6, 7, 2, 1, 0]
    cache.add("b", range(11))
    assert [e.block for e in cache.events if e.kind == "BlockHit"] == [0, 1]
    assert cache.table == {"b": [0, 1, 3]}
    assert cache.free_blocks == [4, 5, 6, 7, 2]
