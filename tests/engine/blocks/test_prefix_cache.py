"""Each rule of prefix caching on a pool small enough to follow by hand: blocks of 4 tokens unless a test says so."""

import subprocess
import sys

import pytest

from pagedviz.engine.blocks import hashing
from pagedviz.engine.blocks.changes.caching import evict
from pagedviz.engine.log import errors
from pagedviz.engine.log.events.blocks import (
    BlockAllocated,
    BlockCached,
    BlockCollapsed,
    BlockEvicted,
    BlockFreed,
    BlockHit,
    BlockReleased,
    SequenceAdded,
    TokensWritten,
    TokenWritten,
)
from pagedviz.engine.log.events.transfers import BlockSpilled
from pagedviz.engine.policies.free_queue import FreeQueue
from tests.engine.engine_cases import Watched, refused


def caching(num_blocks: int = 8, profile: str = "vllm-v1", **options) -> Watched:
    return Watched(num_blocks, profile=profile, prefix_caching=True, **options)


def short(*blocks, salt=None):
    """The hash of the last of these blocks of tokens, as events show it."""
    link = None
    for tokens in blocks:
        link = hashing.link(link, tokens, salt)
    return link.short


# --- the hash ---


def test_hash_is_the_same_in_another_process():
    code = "from pagedviz.engine.blocks.hashing import link; print(link(None, ['a', 7, '🙂'], 's').short)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == short(["a", 7, "🙂"], salt="s")


def test_hash_of_the_docstring():
    assert hashing.block_hash(b"", ("a", "b"), None).hex()[:8] == "b5364dbd"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (short([7]), short(["7"])),
        (short(["a", "b"]), short(["ab"])),
        (short(["a"], ["b"]), short(["b"])),
        (short(["a"], ["b"]), short(["b"], ["a"])),
        (short(["a"], salt="s"), short(["a"])),
        (short(["a"], ["b"], salt="s"), short(["a"], ["b"])),
        (short(["a"], salt="None"), short(["a"], salt=None)),
    ],
)
def test_hashes_of_different_content_differ(one, other):
    assert one != other


def test_equal_hash_of_other_tokens_is_no_hit(monkeypatch):
    monkeypatch.setattr(hashing, "block_hash", lambda parent, tokens, salt: b"the same for all")
    cache = caching()
    cache.add("A", "abcdefghi")
    assert cache.longest_prefix("abcdefghi") == [1, 2]
    assert cache.longest_prefix("wxyzefghi") == []
    assert cache.longest_prefix("efghi") == []
    assert cache.longest_prefix("abcdwxyzi") == [1]
    assert cache.longest_prefix("abcdefghi", salt="s") == []


# --- the free queue ---


def test_queue_gives_up_a_block_from_anywhere():
    for block in range(4):
        queue = FreeQueue(5, [3, 1, 0, 2])
        queue.remove(block)
        assert list(queue) == [other for other in (3, 1, 0, 2) if other != block]
        queue.insert(block, queue.last)
        queue.insert(4, None)
        assert list(queue) == [4, *(other for other in (3, 1, 0, 2) if other != block), block]
        assert len(queue) == 5


def test_empty_queue_says_so():
    with pytest.raises(IndexError, match=r"FreeQueue\.first: the queue is empty"):
        _ = FreeQueue(3, []).first


# --- hits ---


def test_hit_is_taken_out_of_the_free_queue_and_only_the_rest_is_written():
    cache = caching()
    cache.add("A", "abcdefghij")
    cache.free("A")
    assert cache.free_blocks == [3, 4, 5, 6, 7, 2, 1]
    reported = len(cache.events)
    cache.add("B", "abcdefghijk", salt=None)
    first, second = short("abcd"), short("abcd", "efgh")
    reason = "a prompt of 11 needs ceil(11 / 4) = 3, 2 of them cached"
    assert cache.events[reported:] == [
        SequenceAdded("B", num_tokens=11),
        BlockHit("B", 0, 1, first, ref_count=1, tokens=tuple("abcd"), num_tokens=11),
        BlockHit("B", 1, 2, second, ref_count=1, tokens=tuple("efgh"), num_tokens=11),
        BlockAllocated("B", 2, 3, reason),
        TokensWritten("B", position=8, tokens=tuple("ijk"), slots=(12, 13, 14), engine_step=0),
    ]
    assert cache.free_blocks == [4, 5, 6, 7]


def test_hit_on_a_block_in_use_is_shared():
    cache = caching()
    cache.add("A", "abcdefg")
    cache.add("B", "abcdz")
    assert cache.table == {"A": [1, 2], "B": [1, 3]}
    assert cache.ref_counts == {1: 2, 2: 1, 3: 1}
    cache.free("A")
    assert cache.events[-2] == BlockReleased("A", 0, 1, "device", ref_count=1, num_tokens=0)
    assert cache.cached == {1}
    assert cache.free_blocks == [2, 4, 5, 6, 7]


def test_at_least_one_token_is_computed():
    cache = caching()
    cache.add("A", "abcdefgh")
    assert cache.longest_prefix("abcdefgh") == [1]
    assert cache.longest_prefix("abcdefghi") == [1, 2]
    assert cache.longest_prefix("abcd") == []
    assert cache.longest_prefix("") == []


def test_hits_end_at_the_first_gap():
    cache = caching(5)
    cache.add("A", "abcdefghijkl")
    cache.free("A")
    cache.add("B", "wxyzw")
    assert cache.events[-3] == BlockAllocated("B", 1, 3, "a prompt of 5 needs ceil(5 / 4) = 2")
    assert cache.longest_prefix("abcdefghijklm") == [1, 2]
    cache.append("B", "xyzw")
    assert cache.longest_prefix("abcdefghijklm") == [1]


def test_middle_of_a_chain_alone_is_no_hit():
    cache = caching()
    cache.add("A", "abcdefgh")
    evict(cache.state, 1, "the test says so")
    assert cache.longest_prefix("abcdefghi") == []
    assert cache.cached == {2}


def test_child_behind_a_parent_that_was_cached_anew_is_found_again():
    cache = caching()
    cache.add("A", "abcdefgh")
    evict(cache.state, 1, "the test says so")
    cache.add("B", "abcd")
    assert cache.longest_prefix("abcdefghi") == [3, 2]


def test_partly_filled_block_has_no_hash_until_it_is_full():
    cache = caching()
    cache.add("A", "abc")
    assert cache.cached == set()
    cache.append("A", "d")
    assert cache.events[-2] == BlockCached("A", 0, 1, short("abcd"), None, tuple("abcd"))
    cache.append("A", "efghi")
    assert cache.events[-2] == BlockCached("A", 1, 2, short("abcd", "efgh"), short("abcd"), tuple("efgh"))


def test_nothing_is_cached_when_caching_is_off():
    cache = Watched(profile="vllm-v1")
    cache.add("A", "abcdefgh")
    cache.free("A")
    assert cache.cached == set()
    assert cache.longest_prefix("abcdefghi") == []
    assert cache.free_blocks == [2, 1, 3, 4, 5, 6, 7]


def test_forked_child_publishes_behind_its_parents_blocks():
    cache = caching(profile="vllm-v0")
    cache.add("A", "abcdef", salt="s")
    cache.fork("A", "B")
    cache.append("B", "gh")
    assert [event.block for event in cache.events if event.kind == "BlockCached"] == [0, 2]
    assert cache.longest_prefix("abcdefghi", "s") == [0, 2]
    assert cache.longest_prefix("abcdefghi") == []


# --- refusals ---


def test_hits_in_the_free_queue_count_among_what_is_needed_and_a_refusal_touches_none():
    cache = caching(6)
    cache.add("A", "abcdefgh")
    cache.free("A")
    cache.add("B", "wxyzwxyz")
    assert cache.free_blocks == [5, 2, 1]
    with refused(cache, errors.NoFreeBlocks, seq_id="C", needed=4, free=3, total=5):
        cache.add("C", "abcdefghijklm")
    cache.add("C", "abcdefghijkl")
    assert cache.table["C"] == [1, 2, 5]


def test_hits_in_use_cost_nothing():
    cache = caching(5)
    cache.add("A", "abcdefghijkl")
    cache.add("B", "abcdefghijklm")
    assert cache.table["B"] == [1, 2, 3, 4]
    assert cache.free_blocks == []


def test_refused_add_leaves_no_trace_of_its_look_up():
    cache = caching(4)
    cache.add("A", "abcdefgh")
    cache.free("A")
    with refused(cache, errors.NeverFits, seq_id="B", needed=4, total=3):
        cache.add("B", "abcdefghijklm")
    with refused(cache, errors.NoTokens, seq_id="B"):
        cache.add("B", "")


# --- eviction ---


def test_block_that_goes_out_loses_its_hash_and_the_tail_of_a_chain_goes_first():
    cache = caching(4)
    cache.add("A", "abcdefghi")
    cache.free("A")
    assert cache.free_blocks == [3, 2, 1]
    reported = len(cache.events)
    cache.add("B", "wxyzw")
    assert cache.events[reported + 1 :] == [
        BlockAllocated("B", 0, 3, "a prompt of 5 needs ceil(5 / 4) = 2"),
        BlockEvicted(
            2, short("abcd", "efgh"), 0, "it is the next out of the free queue, and is wanted for other tokens"
        ),
        BlockAllocated("B", 1, 2, "a prompt of 5 needs ceil(5 / 4) = 2"),
        BlockCached("B", 0, 3, short("wxyz"), None, tuple("wxyz")),
        TokensWritten("B", position=0, tokens=tuple("wxyzw"), slots=(12, 13, 14, 15, 8), engine_step=0),
    ]
    assert cache.cached == {1, 3}


def test_copy_on_write_evicts_what_it_takes():
    cache = caching(3, "vllm-v0")
    cache.add("A", "abcdefgh")
    cache.free("A")
    cache.add("B", "xy")
    cache.fork("B", "C")
    cache.append("C", "z")
    assert cache.table == {"B": [2], "C": [1]}
    assert cache.cached == {0}


def test_freed_blocks_say_whether_they_are_cached():
    cache = caching()
    cache.add("A", "abcde")
    cache.free("A")
    assert cache.events[-3:-1] == [
        BlockFreed("A", 1, 2, "device", 0, num_tokens=4, cached=False),
        BlockFreed("A", 0, 1, "device", 6, num_tokens=0, cached=True),
    ]


# --- the last use, by which v0 orders its queue ---


def test_block_that_a_later_sequence_used_too_is_as_recent_as_that_one():
    cache = caching(6, "vllm-v0")
    for cache.engine_step, (seq_id, tokens) in enumerate([("A", "abcd"), ("B", "efgh"), ("C", "abcdx")], 1):
        cache.add(seq_id, tokens)
    for seq_id in "CAB":
        cache.free(seq_id)
    assert cache.free_blocks == [2, 3, 4, 5, 1, 0]


def test_last_use_of_an_earlier_content_of_a_block_counts_no_more():
    cache = caching(4, "vllm-v0")
    for cache.engine_step, (seq_id, tokens) in enumerate([("F", "ffff"), ("G", "gggg"), ("A", "aaaa")], 1):
        cache.add(seq_id, tokens)
        if seq_id == "F":
            cache.spill("F")
    cache.engine_step = 4
    cache.add("C", "aaaay")
    cache.free("C")
    cache.spill("A")
    cache.reload("F")
    assert cache.table == {"F": [1], "G": [0], "A": [None]}
    cache.free("F")
    cache.free("G")
    assert cache.free_blocks == [2, 3, 1, 0]


def test_block_without_a_hash_has_no_place_by_its_last_use():
    cache = caching(2, "vllm-v0")
    for cache.engine_step, (seq_id, tokens) in enumerate([("C", "cccc"), ("A", "aaaa")], 1):
        cache.add(seq_id, tokens)
    cache.free("A")
    cache.add("D", "x")
    cache.free("D")
    cache.free("C")
    assert cache.free_blocks == [1, 0]


# --- duplicates ---


@pytest.mark.parametrize("profile", ["vllm-v0", "vllm-v1", "nano-vllm"])
def test_equal_content_has_one_link_so_that_a_long_chain_is_compared_in_one_step(profile):
    cache = caching(profile=profile)
    cache.add("A", "abcd")
    cache.add("B", "abcd")
    assert cache.sequences["B"].links[0] is cache.sequences["A"].links[0]


def test_v1_hits_the_older_of_two_and_then_the_other():
    cache = caching()
    cache.add("A", "abcd")
    cache.add("B", "abcd")
    assert cache.table == {"A": [1], "B": [2]}
    assert cache.longest_prefix("abcde") == [1]
    evict(cache.state, 1, "the test says so")
    assert cache.longest_prefix("abcde") == [2]


def test_v0_collapses_onto_a_block_that_lies_in_the_free_queue():
    cache = caching(4, "vllm-v0")
    cache.add("A", "abcd")
    cache.free("A")
    cache.add("B", "abcd")
    assert cache.events[-2:] == [
        TokensWritten("B", position=0, tokens=tuple("abcd"), slots=(4, 5, 6, 7), engine_step=0),
        BlockCollapsed("B", 0, source=1, target=0, ref_count=1, queue_index=0),
    ]
    assert cache.free_blocks == [1, 2, 3]
    cache.append("B", "efgh")
    assert cache.longest_prefix("abcdefghi") == [0, 1]


def test_nano_hits_the_last_writer_and_the_other_loses_its_hash():
    cache = caching(8, "nano-vllm")
    cache.add("A", "abcd")
    cache.add("B", "abcd")
    assert cache.events[-2:] == [
        BlockEvicted(0, short("abcd"), 1, "block 1 holds the same, and the map names the last writer"),
        BlockCached("B", 0, 1, short("abcd"), None, tuple("abcd")),
    ]
    assert cache.longest_prefix("abcde") == [1]


# --- spill and reload ---


def test_spilled_block_loses_its_hash_and_gets_it_back_where_it_lands():
    cache = caching()
    cache.add("A", "abcde")
    cache.spill("A")
    assert cache.longest_prefix("abcde") == []
    assert isinstance(cache.events[-1], BlockSpilled)
    cache.reload("A")
    assert cache.table == {"A": [2, 1]}
    assert cache.longest_prefix("abcde") == [2]


def test_reloaded_block_that_is_cached_elsewhere_keeps_its_own_copy_without_a_hash():
    cache = caching(profile="vllm-v0")
    cache.add("A", "abcde")
    cache.spill("A")
    cache.add("B", "abcdz")
    cache.reload("A")
    assert cache.cached == {cache.table["B"][0]}
    assert not {*cache.table["A"]} & {*cache.table["B"]}


def test_automatic_spill_leaves_the_blocks_that_the_newcomer_hits():
    cache = caching(4, auto_spill=True)
    cache.add("A", "abcdef")
    cache.add("B", "abcdefghij")
    assert cache.table == {"A": [1, None], "B": [1, 2, 3]}


# --- reset ---


def test_reset_forgets_every_prefix():
    cache = caching()
    cache.add("A", "abcdefgh")
    cache.free("A")
    free = cache.free_blocks
    cache.reset_prefix_cache()
    assert [event.kind for event in cache.events[-2:]] == ["BlockEvicted"] * 2
    assert cache.cache.links == cache.cache._by_hash == {}
    assert cache.longest_prefix("abcdefghi") == []
    assert cache.free_blocks == free


def test_reset_is_refused_while_a_block_is_in_use():
    cache = caching()
    cache.add("A", "abcdefgh")
    cache.free("A")
    cache.add("B", "z")
    with refused(cache, errors.BlocksInUse, in_use=1):
        cache.reset_prefix_cache()
    cache.spill("B")
    with refused(cache, errors.BlocksInUse, in_use=1):
        cache.reset_prefix_cache()


def test_one_token_behind_hits_is_one_token_written():
    cache = caching()
    cache.add("A", "abcd")
    cache.add("B", "abcde")
    assert cache.events[-1] == TokenWritten("B", 4, "e", block=2, offset=0, slot=8, engine_step=0)
