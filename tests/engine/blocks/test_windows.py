"""Sliding windows, and groups of layers: one pool, a table for each, and a hit on which all of them agree."""

import pytest

from pagedviz.engine.blocks.changes import caching
from pagedviz.engine.log.errors import NeverFits, NoFreeBlocks, SeveralTables
from pagedviz.engine.policies.limits import Limits
from pagedviz.engine.policies.windows import agreed_prefix, below_window, most_blocks, window_and_two_blocks
from tests.engine.engine_cases import Watched, refused
from tests.engine.requests.request_cases import WatchedScheduler

# --- the formulas ---


@pytest.mark.parametrize(
    ("num_tokens", "released"), [(0, 0), (7, 0), (10, 0), (11, 1), (14, 1), (15, 2), (16, 2), (19, 3)]
)
def test_a_block_goes_when_the_next_token_sees_none_of_it(num_tokens, released):
    """Window 8, blocks of 4: token 11 sees 4 to 11."""
    assert below_window(num_tokens, 8, 4) == released


@pytest.mark.parametrize("release", [below_window, window_and_two_blocks])
@pytest.mark.parametrize("window", [1, 3, 4, 5, 8, 9])
@pytest.mark.parametrize("chunk", [1, 3, 4, 7])
def test_most_blocks_is_the_most_that_chunked_growth_ever_holds(release, window, chunk):
    for num_tokens in (1, 5, 40):
        held = []
        for start in range(0, num_tokens, chunk):
            end = min(start + chunk, num_tokens)
            held.append(-(-end // 4) - release(start, window, 4))
        assert max(held) <= most_blocks(num_tokens, chunk, window, 4, release)
    starts = range(40, 60)
    reached = max(-(-(start + chunk) // 4) - release(start, window, 4) for start in starts)
    assert most_blocks(1_000, chunk, window, 4, release) == reached


@pytest.mark.parametrize(
    ("full", "windowed", "agreed"),
    [
        ([1, 2, 3], [4, 5, 6], 3),
        ([1, 2, 3], [None, None, 6], 3),
        ([1, 2, 3], [4, 5, None], 2),
        ([1, 2, 3], [None, 5, None], 2),
        ([1, None, 3], [None, None, 6], 0),
        ([1, 2, None], [4, None, 6], 1),
        ([None, 2, 3], [4, 5, 6], 0),
    ],
)
def test_a_hit_is_what_every_group_agrees_on(full, windowed, agreed):
    """Window 4, blocks of 4: behind a hit the next token sees the last block of it."""
    assert agreed_prefix([full, windowed], [None, 4], 4) == agreed
    assert agreed_prefix([windowed, full], [4, None], 4) == agreed


# --- one window ---


def grown(num_tokens: int, **settings) -> Watched:
    cache = Watched(12, profile="vllm-v1", windows=[8], **settings)
    cache.add("p", range(8))
    for token in range(8, num_tokens):
        cache.append("p", [token])
    return cache


def test_blocks_below_the_window_go_to_the_free_queue_and_are_named_null():
    cache = grown(12)
    assert cache.table == {"p": [0, 2, 3]}
    assert cache.free_blocks[0] == 1
    event = next(e for e in cache.events if e.kind == "BlockOutOfWindow")
    assert (event.logical_block, event.block, event.first_seen) == (0, 1, 4)


def test_memory_does_not_grow_with_the_length():
    cache = grown(60)
    assert cache.table["p"].count(0) == 13
    assert len(cache.ref_counts) == 2


def test_several_blocks_go_tail_first():
    cache = Watched(12, profile="vllm-v1", windows=[4])
    cache.add("p", range(16))
    cache.append("p", [16])
    assert [e.logical_block for e in cache.events if e.kind == "BlockOutOfWindow"] == [2, 1, 0]
    # As one run before the head, then block 3 goes out for the new token.
    assert cache.table == {"p": [0, 0, 0, 4, 3]}
    assert cache.free_blocks[:2] == [2, 1]


def test_a_freed_sequence_gives_back_each_block_once():
    cache = grown(30, prefix_caching=True)
    cache.free("p")
    assert sorted(cache.free_blocks) == list(range(1, 12))


def test_a_hit_needs_only_what_the_window_sees():
    cache = grown(26, prefix_caching=True)
    cache.free("p")
    cache.add("q", range(23))
    assert [e.kind for e in cache.events if e.kind in ("PrefixSkipped", "BlockHit")] == [
        "PrefixSkipped",
        *["BlockHit"] * 2,
    ]
    assert cache.table["q"][:3] == [0, 0, 0]
    assert cache.snapshot().tokens["q"] == tuple(range(23))


def test_forked_sequences_share_what_is_in_the_window():
    cache = Watched(12, profile="vllm-v0", windows=[4], window_release="below_window")
    cache.add("p", range(8))
    cache.append("p", [8])
    null = cache.snapshot().null_block
    cache.fork("p", "c")
    assert cache.table["c"] == cache.table["p"]
    assert cache.table["c"][0] == null
    cache.append("c", [9])
    cache.append("p", [10])
    assert cache.snapshot().tokens["c"] == (*range(9), 9)


def test_spill_leaves_the_null_block_alone():
    cache = Watched(12, profile="vllm-v0", windows=[4], window_release="below_window")
    cache.add("p", range(8))
    cache.append("p", [8])
    null = cache.snapshot().null_block
    cache.spill("p")
    assert cache.table == {"p": [null, None, None]}
    cache.reload("p")
    cache.append("p", [9])
    assert cache.table["p"][0] == null


def test_a_long_prompt_in_chunks_is_admitted_to_a_pool_that_holds_its_window():
    """40 tokens need 10 blocks of full attention; in chunks of 8 a window of 8 needs 5 at most."""
    limits = Limits(max_num_batched_tokens=8)
    full = WatchedScheduler(6, limits=limits)
    with pytest.raises(NeverFits):
        full.submit("A", range(40), 1)
    windowed = WatchedScheduler(6, limits=limits, windows=(8,))
    windowed.submit("A", range(40), 1)
    while windowed.has_work:
        assert windowed.step()
    assert windowed.requests["A"].output


def test_a_window_of_one_token_may_let_go_of_a_block_before_it_gets_its_hash():
    """Accepted drafts fill it; where hashes are given when tokens are scheduled, it is gone by then."""
    cache = Watched(9, profile="vllm-v1", windows=[1], prefix_caching=True)
    cache.add("p", range(5))
    cache.draft("p", 5, [6, 7])
    cache.write(["p"])
    cache.verify("p", 2)
    cache.append("p", [8])
    assert cache.table["p"][:2] == [0, 0]
    assert 0 not in cache.cached


def v0(num_blocks: int, window: int, **settings) -> Watched:
    settings = {"window_release": "below_window"} | settings
    return Watched(num_blocks, profile="vllm-v0", windows=[window], **settings)


def test_a_block_that_leaves_one_window_of_two_gives_no_room():
    cache = v0(5, 4)
    cache.add("p", range(8))
    cache.fork("p", "c")
    cache.append("p", [8])
    assert len(cache.free_blocks) == 1
    cache.append("c", [9])
    cache.append("p", [10, 11, 12])
    shared = cache.table["p"][1]
    assert cache.ref_counts[shared] == 2
    # Both would let go of it in time; p alone frees nothing by it.
    with refused(cache, NoFreeBlocks, seq_id="p", needed=2, free=1, total=4):
        cache.append("p", [13] * 5)


def test_a_long_sequence_is_not_said_never_to_fit_where_its_window_does():
    cache = Watched(6, profile="vllm-v1", windows=[4])
    cache.add("p", range(4))
    for token in range(4, 32):
        cache.append("p", [token])
    cache.add("q", range(12))
    with refused(cache, NoFreeBlocks, seq_id="p", needed=2, free=1, total=5):
        cache.append("p", [32] * 5)


def test_the_null_block_that_is_still_to_be_taken_is_counted():
    cache = v0(4, 4)
    cache.add("p", range(4))
    cache.add("q", range(7))
    with refused(cache, NoFreeBlocks, seq_id="p", needed=2, free=1, total=3):
        cache.append("p", [4])


def test_the_null_block_is_taken_before_a_block_goes_out_of_the_window_so_it_needs_a_free_one():
    cache = Watched(4, profile="nano-vllm", windows=(5,))
    cache.add("a", range(11))
    cache.add("b", [7])
    with refused(cache, NoFreeBlocks, seq_id="a", needed=1, free=0, total=3):
        cache.append("a", [0])
    cache.free("b")
    cache.append("a", [0])
    assert cache.table == {"a": [3, 1, 2]}


def test_a_hit_that_skips_needs_the_null_block():
    cache = v0(4, 4, prefix_caching=True)
    cache.add("p", range(9))
    cache.free("p")
    hit = cache.longest_prefix(range(9))[1]
    cache.add("other", ["x"])
    # The window sees one of the two cached blocks; one more is computed, and one becomes the null block.
    with refused(cache, NoFreeBlocks, seq_id="q", needed=4, free=3, total=3):
        cache.add("q", range(13))
    cache.add("q", range(9))
    assert cache.free_blocks == []
    assert cache.table["q"][1] == hit


@pytest.mark.parametrize("first", ["hit", "other"])
def test_the_null_block_is_none_that_the_same_prompt_hits(first):
    cache = v0(6, 4, prefix_caching=True, free_order="end_of_queue")
    cache.add("p", range(9))
    cache.free("p")
    if first == "hit":
        cache.add("other", list("xyzxyzxyzxyzxyzx"))
        cache.free("other")
    hit = cache.longest_prefix(range(9))[1]
    assert (cache.free_blocks[0] == hit) == (first == "hit")
    cache.add("q", range(9))
    assert cache.table["q"][:2] == [cache.state.null_block, hit]


def test_a_forked_sequence_publishes_what_it_holds():
    cache = v0(12, 4, prefix_caching=True)
    cache.add("p", range(8))
    cache.append("p", [8])
    cache.fork("p", "c")
    cache.append("c", [9, 10, 11])
    assert cache.longest_prefix([*range(12), "x"])[2] == cache.table["c"][2]


# --- groups ---


def two_groups(**settings) -> Watched:
    return Watched(20, profile="vllm-v1", windows=[None, 8], prefix_caching=True, **settings)


def test_every_group_has_a_table_of_its_own_blocks():
    cache = two_groups()
    cache.add("p", range(10))
    state = cache.snapshot()
    assert state.block_tables == {"p": (1, 2, 3)}
    assert state.group_tables == ({"p": (4, 5, 6)},)
    assert {block: entry.group for block, entry in state.cached.items()} == {1: 0, 2: 0, 4: 1, 5: 1}


def test_only_the_windowed_group_lets_go():
    cache = two_groups()
    cache.add("p", range(18))
    cache.append("p", [18])
    state = cache.snapshot()
    assert state.block_tables == {"p": (1, 2, 3, 4, 5)}
    assert state.group_tables == ({"p": (0, 0, 8, 9, 10)},)


def test_equal_tokens_in_another_group_are_no_hit():
    cache = two_groups()
    cache.add("p", range(5))
    first, second = cache.snapshot().block_tables["p"][0], cache.snapshot().group_tables[0]["p"][0]
    cache.add("q", range(5))
    assert cache.snapshot().block_tables["q"][0] == first
    assert cache.snapshot().group_tables[0]["q"][0] == second


def test_groups_that_hold_the_same_tokens_are_not_collapsed_into_one():
    cache = Watched(20, profile="sglang", windows=[None, 8], prefix_caching=True)
    cache.add("p", range(9))
    assert not any(event.kind == "BlockCollapsed" for event in cache.events)
    assert len(cache.cached) == 4


def test_what_one_group_has_lost_no_group_hits():
    cache = two_groups()
    cache.add("p", range(9))
    cache.free("p")
    assert len(cache.longest_prefix(range(9))) == 2
    lost = next(b for b, entry in cache.snapshot().cached.items() if entry.group == 1 and 4 in entry.tokens)
    caching.evict(cache.state, lost, "of the test")
    assert len(cache.longest_prefix(range(9))) == 1


def test_needed_blocks_are_counted_in_all_groups():
    cache = Watched(7, profile="vllm-v1", windows=[None, 8])
    with refused(cache, NeverFits, seq_id="p", needed=8, total=6):
        cache.add("p", range(13))
    cache.add("p", range(12))
    assert cache.free_blocks == []
    assert sorted(cache.ref_counts) == [1, 2, 3, 4, 5, 6]


def test_drafts_are_rolled_back_in_every_group():
    cache = two_groups()
    cache.add("p", range(6))
    cache.draft("p", "next", [7, 8, 9])
    cache.write(["p"])
    cache.verify("p", 1)
    tables = [cache.snapshot().tables(group)["p"] for group in (0, 1)]
    assert cache.events[-1].slots == (tables[0][2] * 4, tables[0][2] * 4 + 1, tables[1][2] * 4, tables[1][2] * 4 + 1)


def test_several_tables_are_neither_spilled_nor_forked():
    cache = two_groups(fork=True)
    cache.add("p", range(5))
    with refused(cache, SeveralTables, seq_id="p", groups=2):
        cache.spill("p")
    with refused(cache, SeveralTables, seq_id="p", groups=2):
        cache.fork("p", "c")
