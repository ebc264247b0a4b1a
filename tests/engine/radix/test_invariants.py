"""Each invariant of the radix tree finds a tree that breaks it, and names what is wrong."""

import dataclasses

import pytest

from pagedviz.engine.radix import invariants
from pagedviz.engine.radix.events import RadixEvicted, RadixMatched
from pagedviz.engine.radix.snapshot import RadixSnapshot
from tests.engine.radix.radix_cases import WatchedTree

NOTHING = RadixMatched(num_given=0, num_tokens=0, nodes=(), time=0)


def state() -> RadixSnapshot:
    """Node 2 "ab" above nodes 1 "cdef" and 3 "XY", in pages of 2; node 3 and so node 2 are locked."""
    tree = WatchedTree(page_size=2)
    tree.insert("abcdef", [4, 6, 5])
    tree.insert("abXY", [4, 1])
    tree.lock(3)
    return tree.snapshot()


def with_node(node: int, **changes: object) -> RadixSnapshot:
    good = state()
    run = dataclasses.replace(good.nodes[node], **changes)
    return dataclasses.replace(good, nodes={**good.nodes, node: run})


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (
            dataclasses.replace(state(), evictable_size=6),
            "sizes_add_up: evictable_size is 6, and 4 tokens are not locked",
        ),
        (dataclasses.replace(state(), protected_size=0), "sizes_add_up: protected_size is 0, and 4 tokens are locked"),
        (with_node(3, parent=9), "one_root: node 3 hangs below node 9, which is gone"),
        (with_node(3, parent=None), "one_root: node 3 has no parent"),
        (with_node(3, salt="s"), "one_root: node 3 has salt s, and node 2 above it None"),
        (with_node(2, lock_count=0), "locked_above: node 2 counts 0 locks, and its children 1"),
        (with_node(1, tokens=tuple("cde")), "whole_pages: node 1 has 3 tokens in 2 pages of 2"),
        (with_node(3, tokens=(), pages=()), "whole_pages: node 3 has 0 tokens"),
        (
            with_node(3, tokens=tuple("cd")),
            "one_child_a_page: 2 children of node 2 begin with ('c', 'd') under salt None",
        ),
        (with_node(3, pages=(5,)), "owned_once: page 5 is owned 2 times"),
    ],
)
def test_broken_tree_is_named(broken, sentence):
    assert sentence in invariants.broken(broken, NOTHING, broken)


def test_eviction_of_what_is_locked_or_has_children_is_named():
    before = state()
    assert "only_free_leaves_evicted: node 3 was evicted under 1 locks" in invariants.broken(
        before, RadixEvicted(3, "lru", tuple("XY"), (1,)), before
    )
    assert "only_free_leaves_evicted: node 2 was evicted above its children [1, 3]" in invariants.broken(
        before, RadixEvicted(2, "lru", tuple("ab"), (4,)), before
    )


def test_change_without_an_event_is_named():
    event = RadixMatched(num_given=1, num_tokens=0, nodes=(0,), time=3)
    silent = with_node(1, hit_count=7)
    assert invariants.broken(state(), event, silent) == ["replay_agrees: replaying RadixMatched gives another tree"]
