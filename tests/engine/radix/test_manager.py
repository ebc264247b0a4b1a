"""A tree with its pool of pages: by hand, and beside the block manager on any prompts. Every event is checked."""

import random

import pytest

from pagedviz.engine.log import errors
from pagedviz.engine.radix.manager import RadixManager
from pagedviz.lesson import Run
from pagedviz.run.radix_play import RadixPlayer
from pagedviz.scenario.json_values import ScenarioError
from pagedviz.scenario.operations import Add, Append, Fork, Free
from pagedviz.scenario.settings import CacheConfig
from tests.engine.radix.radix_cases import WatchedTree


def manager(page_size=1, num_pages=12):
    return RadixManager(WatchedTree(page_size), num_pages)


def owned(held):
    """The tree's pages."""
    return [page for run in held.tree.snapshot().nodes.values() for page in run.pages]


def all_pages_are_somewhere_once(held):
    own = [page for seq in held.sequences.values() for page in seq.pages[seq.num_kept :]]
    assert sorted([*owned(held), *own, *held.free_pages]) == list(range(held.num_pages))


def test_prompt_takes_pages_for_what_it_did_not_hit_and_gives_the_whole_ones_to_the_tree():
    held = manager(page_size=2)
    assert held.add("A", "abcde") == 0
    assert held.add("B", "abcxy") == 2
    assert (held.sequences["A"].pages, held.sequences["A"].num_kept) == ([0, 1, 2], 2)
    assert (held.sequences["B"].pages, held.sequences["B"].num_kept) == ([0, 3, 4], 2)
    assert sorted(owned(held)) == [0, 1, 3]
    all_pages_are_somewhere_once(held)


def test_admitted_prompt_locks_what_it_hit_and_is_in_the_tree_only_when_it_is_computed():
    held = manager()
    held.add("A", "abc")
    held.free("A")
    assert held.admit("B", "abXY") == 2
    assert held.tree.sizes == (1, 2)
    assert held.num_hit_tokens("abXYZ") == 2
    held.keep("B")
    assert held.tree.sizes == (1, 4)
    assert held.num_hit_tokens("abXYZ") == 4


def test_later_tokens_fill_the_sequences_own_page_first_and_are_the_trees_when_it_is_finished():
    held = manager(page_size=2)
    held.add("A", "abc")
    held.append("A", "d")
    assert held.sequences["A"].pages == [0, 1]
    held.append("A", "ef")
    assert held.sequences["A"].pages == [0, 1, 2]
    assert held.num_hit_tokens("abcdefg") == 2
    all_pages_are_somewhere_once(held)
    held.free("A")
    assert held.num_hit_tokens("abcdefg") == 6
    assert held.tree.sizes == (6, 0)


def test_page_that_the_tree_holds_already_is_free_again():
    """All of B's tokens are cached, but its last page is computed all the same, for its output is wanted."""
    held = manager(page_size=2)
    held.add("A", "abcd")
    assert held.add("B", "abcd") == 2
    assert held.sequences["B"].pages == [0, 1]
    assert list(held.free_pages)[-1] == 2
    all_pages_are_somewhere_once(held)


def test_unlocked_nodes_are_evicted_for_a_prompt_that_needs_the_room():
    held = manager(num_pages=6)
    held.add("A", "abc")
    held.add("B", "xyz")
    held.free("A")
    assert held.add("C", "123") == 0
    assert held.sequences["C"].pages == [0, 1, 2]
    assert held.num_hit_tokens("abcd") == 0
    assert held.num_hit_tokens("xyz0") == 3


def test_prompt_that_does_not_fit_is_refused_and_locks_nothing():
    held = manager(num_pages=6)
    held.add("A", "abc")
    held.free("A")
    held.add("B", "xyz")
    with pytest.raises(errors.TooFewEvictable):
        held.add("C", "ab" + "3" * 9)
    assert held.tree.sizes == (3, 3)
    assert list(held.sequences) == ["B"]
    assert held.num_hit_tokens("abcd") == 3


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (errors.DuplicateSequence, lambda held: held.add("A", "x")),
        (errors.NoTokens, lambda held: held.add("B", "")),
        (errors.UnknownSequence, lambda held: held.append("B", "x")),
        (errors.UnknownSequence, lambda held: held.free("B")),
    ],
)
def test_what_makes_no_sense_is_refused(error, call):
    held = manager()
    held.add("A", "abc")
    with pytest.raises(error):
        call(held)
    assert list(held.sequences) == ["A"]


def workload(seed, num_prompts):
    """Prompts over two letters, some of them finished on the way: they meet and part all the time."""
    choose, running, ops = random.Random(seed), [], []
    for i in range(num_prompts):
        ops.append(Add(f"S{i}", tuple(choose.choices("ab", k=choose.randint(1, 14)))))
        running.append(f"S{i}")
        while len(running) > 3:
            ops.append(Free(running.pop(choose.randrange(len(running)))))
    return ops


def hits_of_tree(ops, cache, page_size):
    player = RadixPlayer(cache, page_size)
    for op in ops:
        player.perform(op)
        all_pages_are_somewhere_once(player.manager)
    return player.hits


def hits_of_blocks(ops, cache):
    run, hits = Run(cache, 0), {}
    for op in ops:
        if isinstance(op, Add):
            hits[op.seq_id] = run.num_hit_tokens(op.tokens)
            run.add(op.seq_id, op.tokens)
        else:
            run.free(op.seq_id)
    return hits


@pytest.mark.parametrize("profile", ["vllm-v1", "vllm-v0", "nano-vllm"])
@pytest.mark.parametrize("seed", range(12))
def test_tree_and_chain_tie_with_pages_as_large_as_blocks_while_nothing_is_evicted(seed, profile):
    cache = CacheConfig(num_blocks=400, block_size=2, num_layers=1, profile=profile, prefix_caching=True)
    ops = workload(seed, 25)
    blocks, pages = hits_of_blocks(ops, cache), hits_of_tree(ops, cache, 2)
    assert pages == blocks
    assert sum(blocks.values()) > 0


@pytest.mark.parametrize("seed", range(12))
def test_pages_of_one_token_hit_less_than_a_block_more_while_nothing_is_evicted(seed):
    cache = CacheConfig(num_blocks=400, block_size=4, num_layers=1, prefix_caching=True)
    ops = workload(seed, 25)
    fine, coarse = hits_of_tree(ops, cache, 1), hits_of_tree(ops, cache, 4)
    assert all(coarse[seq_id] <= fine[seq_id] < coarse[seq_id] + 4 for seq_id in coarse)
    assert sum(fine.values()) > sum(coarse.values())


@pytest.mark.parametrize("page_size", [1, 2, 4])
@pytest.mark.parametrize("seed", range(6))
def test_no_page_is_lost_while_leaves_are_evicted_all_the_time(seed, page_size):
    cache = CacheConfig(num_blocks=17, block_size=4, prefix_caching=True, profile="vllm-v1")
    ops = [
        Add(op.seq_id, (*op.tokens, *"cd" * (i % 3))) if isinstance(op, Add) else op
        for i, op in enumerate(workload(seed, 60))
    ]
    hits_of_tree(ops, cache, page_size)


# --- a scenario's operations ---


def test_pool_has_the_slots_of_the_blocks_without_the_null_block():
    cache = CacheConfig(num_blocks=9, block_size=4, profile="vllm-v1")
    assert [RadixPlayer(cache, size).manager.num_pages for size in (1, 4, 8)] == [32, 8, 4]
    assert RadixPlayer(CacheConfig(num_blocks=9, profile="vllm-v0"), 4).manager.num_pages == 9


def test_salts_are_kept_apart_and_only_the_last_operation_is_reported():
    player = RadixPlayer(CacheConfig(), 1)
    player.perform(Add("A", tuple("abc"), salt="x"))
    player.perform(Add("B", tuple("abcd")))
    player.perform(Add("C", tuple("abcd"), salt="x"))
    player.perform(Append("C", ("e",)))
    player.perform(Free("C"))
    assert player.hits == {"A": 0, "B": 0, "C": 3}
    assert [event.kind for event in player.reported] == [
        *("RadixRevisited", "RadixInserted", "RadixLocked", "RadixUnlocked", "RadixUnlocked")
    ]


def test_operation_that_the_tree_does_not_know_is_refused():
    player = RadixPlayer(CacheConfig(), 1)
    player.perform(Add("A", tuple("abc")))
    with pytest.raises(ScenarioError, match="the radix tree plays add, append and free, not “fork A as B”"):
        player.perform(Fork("A", "B"))
