"""The ids that the real engines print: rows of `engine_scenarios.jsonl`, each with the engine that printed it.

A learner with that engine on the other screen sees the same numbers here.
"""

import pytest

from pagedviz.engine.block_pool import BlockPool
from pagedviz.engine.errors import BlockNotInUse
from tests.engine_cases import Watched

SIX = list("abcdef")


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


def test_S37_freeing_a_block_twice_raises_and_leaves_the_counts():
    """Printed by vLLM 0.6.4.post1."""
    pool = BlockPool(8, range(8))
    block = pool.take()
    assert pool.release(block) == 0
    pool.put_back(block, 0)
    with pytest.raises(BlockNotInUse, match="Block 0 is free already"):
        pool.release(block)
    assert pool.ref_count == [0] * 8
    assert list(pool.free_blocks) == [0, 1, 2, 3, 4, 5, 6, 7]
