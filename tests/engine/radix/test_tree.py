"""The radix tree, by hand: pages of one token unless a test says so, tokens as letters, node 0 the root."""

import pytest

from pagedviz.engine.log import errors
from pagedviz.engine.radix.events import (
    RadixEvicted,
    RadixInserted,
    RadixLocked,
    RadixMatched,
    RadixRevisited,
    RadixSplit,
    RadixUnlocked,
)
from pagedviz.engine.radix.eviction import fifo, lfu, lru
from pagedviz.engine.radix.snapshot import ROOT
from pagedviz.engine.radix.tree import RadixTree
from tests.engine.radix.radix_cases import WatchedTree, refused


def test_S44_pages_of_four_are_matched_split_locked_and_evicted():
    """Printed by mini-sglang 20fcd7f."""
    tree = WatchedTree(page_size=4)
    kept = tree.insert(range(10), [0, 1, 2])
    assert (kept.num_reused, kept.num_new, kept.pages) == (0, 8, (0, 1))

    whole = tree.match(range(12))
    assert (whole.num_tokens, whole.pages) == (8, (0, 1))

    other = [0, 1, 2, 3, 90, 91, 92, 93]
    half = tree.match(other)
    assert (half.num_tokens, half.pages) == (4, (0,))
    assert (tree.run(half.node), tree.run(whole.node)) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert tree.sizes == (8, 0)

    kept = tree.insert(other, [*half.pages, 3])
    assert (kept.num_reused, kept.num_new, kept.duplicates) == (4, 4, ())
    assert sum(tree.sizes) == 12

    tree.lock(whole.node)
    assert tree.sizes == (4, 8)
    with refused(tree, errors.TooFewEvictable, needed=8, evictable=4, protected=8):
        tree.evict(8)
    assert tree.evict(4) == (3,)

    tree.unlock(whole.node)
    assert tree.sizes == (8, 0)
    exact = tree.match(range(8))
    assert (exact.num_tokens, exact.pages) == (4, (0,))
    assert tree.evict(8) == (1, 0)
    assert tree.sizes == (0, 0)


# --- match ---


def test_match_is_never_the_last_token_and_never_part_of_a_page():
    tree = WatchedTree(page_size=4)
    tree.insert("abcdefgh", [7, 2])
    assert [tree.match("abcdefghi"[:n]).num_tokens for n in range(10)] == [0, 0, 0, 0, 0, 4, 4, 4, 4, 8]


def test_match_with_pages_of_one_token_ends_at_any_token():
    tree = WatchedTree()
    tree.insert("abc", [5, 3, 4])
    assert [tree.match("abcd"[:n]).pages for n in range(5)] == [(), (), (5,), (5, 3), (5, 3, 4)]


def test_match_that_ends_inside_a_page_takes_the_page_before():
    tree = WatchedTree(page_size=4)
    tree.insert("abcdefgh", [7, 2])
    assert tree.match("abcdefXhi").pages == (7,)
    assert tree.match("aXcdefghi").pages == ()


def test_match_splits_a_node_and_uses_the_front_half_only():
    tree = WatchedTree()
    tree.insert("abcd", [0, 1, 2, 3])
    found = tree.match("abX")
    assert tree.events[2:] == [
        RadixSplit(node=1, upper=2, num_tokens=2),
        RadixMatched(num_given=3, num_tokens=2, nodes=(0, 2), time=2),
    ]
    assert found.node == 2
    assert (tree.run(2), tree.run(1)) == (("a", "b"), ("c", "d"))
    nodes = tree.snapshot().nodes
    assert (nodes[2].last_used, nodes[1].last_used) == (2, 1)


def test_match_at_the_end_of_a_node_splits_nothing():
    tree = WatchedTree()
    tree.insert("ab", [0, 1])
    tree.match("abX")
    assert tree.kinds_since(2) == ["RadixMatched"]


def test_other_salt_matches_nothing_and_may_hold_the_same_tokens():
    tree = WatchedTree()
    tree.insert("abc", [0, 1, 2], salt="adapter 1")
    assert tree.match("abcd").pages == ()
    assert tree.match("abcd", salt="adapter 2").pages == ()
    assert tree.insert("abc", [3, 4, 5]).num_reused == 0
    assert tree.match("abcd", salt="adapter 1").pages == (0, 1, 2)
    assert tree.match("abcd").pages == (3, 4, 5)


# --- insert ---


def test_insert_reports_what_was_there_and_what_is_new():
    tree = WatchedTree(page_size=2)
    tree.insert("abcd", [4, 6])
    reported = len(tree.events)
    kept = tree.insert("abXYZ", [4, 1, 9])
    assert tree.events[reported:] == [
        RadixSplit(node=1, upper=2, num_tokens=2),
        RadixRevisited(num_given=4, num_tokens=2, nodes=(0, 2), duplicates=(), time=2),
        RadixInserted(node=3, parent=2, salt=None, tokens=("X", "Y"), pages=(1,), time=2),
    ]
    assert (kept.node, kept.num_reused, kept.num_new, kept.pages) == (3, 2, 2, (4, 1))


def test_pages_that_were_computed_twice_are_the_callers_to_free():
    """Two prompts with one beginning were computed side by side: the second finds the first one's pages in the tree."""
    tree = WatchedTree(page_size=2)
    tree.insert("abcd", [4, 6])
    kept = tree.insert("abcdef", [7, 8, 9])
    assert (kept.pages, kept.duplicates) == ((4, 6, 9), (7, 8))
    assert tree.insert("abcd", [7, 6]).duplicates == (7,)


def test_insert_of_less_than_a_page_keeps_nothing():
    tree = WatchedTree(page_size=4)
    kept = tree.insert("abc", [5])
    assert (kept.node, kept.num_new, kept.pages) == (ROOT, 0, ())
    assert tree.kinds_since(0) == ["RadixRevisited"]


def test_insert_without_a_page_for_each_whole_page_is_refused():
    tree = WatchedTree(page_size=2)
    with refused(tree, errors.TooFewPages, num_tokens=4, needed=2, given=1):
        tree.insert("abcde", [0])


def test_page_for_two_runs_is_refused_before_a_node_is_split():
    tree = WatchedTree()
    tree.insert("abc", [0, 1, 2])
    with refused(tree, errors.PageOwned, page=2):
        tree.insert("abX", [0, 1, 2])
    with refused(tree, errors.PageOwned, page=9):
        tree.insert("abXY", [0, 1, 9, 9])
    with refused(tree, errors.PageOwned, page=1):
        tree.insert("ab", [1, 1])
    tree.evict(3)
    assert tree.insert("X", [2]).num_new == 1


# --- lock and unlock ---


def test_lock_protects_the_path_and_is_counted_at_each_node_of_it():
    tree = WatchedTree()
    left = tree.insert("abcd", range(4)).node
    right = tree.insert("abXYZ", [0, 1, 5, 6, 7]).node
    tree.lock(left)
    assert tree.sizes == (3, 4)
    assert tree.events[-1] == RadixLocked(left, nodes=(0, 2, left), num_tokens=4)
    tree.lock(right)
    assert tree.sizes == (0, 7)
    assert tree.events[-1] == RadixLocked(right, nodes=(0, 2, right), num_tokens=3)
    assert {n: run.lock_count for n, run in tree.snapshot().nodes.items()} == {0: 2, 2: 2, left: 1, right: 1}
    tree.unlock(left)
    assert tree.sizes == (2, 5)
    assert tree.events[-1] == RadixUnlocked(left, nodes=(0, 2, left), num_tokens=2)


def test_locked_node_that_is_split_stays_locked_whole():
    tree = WatchedTree()
    node = tree.insert("abcd", range(4)).node
    tree.lock(node)
    tree.lock(node)
    tree.match("abX")
    assert tree.sizes == (0, 4)
    tree.unlock(node)
    assert tree.sizes == (0, 4)
    tree.unlock(node)
    assert tree.sizes == (4, 0)
    assert tree.evict(4) == (2, 3, 0, 1)


def test_front_half_of_a_locked_node_has_no_lock_of_its_own_to_give_up():
    tree = WatchedTree()
    node = tree.insert("abcd", range(4)).node
    tree.lock(node)
    front = tree.match("abX").node
    with refused(tree, errors.NotLocked, node=front, below=1):
        tree.unlock(front)
    tree.unlock(node)
    with refused(tree, errors.NotLocked, node=node, below=0):
        tree.unlock(node)


def test_prompt_that_matched_nothing_locks_the_root_and_protects_nothing():
    tree = WatchedTree()
    tree.insert("ab", [0, 1])
    tree.lock(tree.match("XY").node)
    assert tree.sizes == (2, 0)
    assert tree.evict(2) == (0, 1)
    tree.unlock(ROOT)


def test_node_that_was_evicted_cannot_be_locked():
    tree = WatchedTree()
    node = tree.insert("ab", [0, 1]).node
    tree.evict(1)
    with refused(tree, errors.UnknownNode, node=node):
        tree.lock(node)
    with refused(tree, errors.UnknownNode, node=node):
        tree.unlock(node)


# --- evict ---


def test_evict_forgets_whole_leaves_so_perhaps_more_than_was_asked():
    tree = WatchedTree()
    tree.insert("abc", [4, 5, 6])
    assert tree.evict(1) == (4, 5, 6)
    assert tree.events[-1] == RadixEvicted(1, policy="lru", tokens=("a", "b", "c"), pages=(4, 5, 6))
    assert tree.match("abcd").num_tokens == 0


def test_evict_passes_over_the_oldest_leaf_while_it_is_locked():
    tree = WatchedTree()
    oldest = tree.insert("a", [0]).node
    tree.insert("b", [1])
    tree.insert("c", [2])
    tree.lock(oldest)
    assert tree.evict(1) == (1,)
    tree.unlock(oldest)
    assert tree.evict(1) == (0,)


def test_evict_refuses_one_token_more_than_can_go():
    tree = WatchedTree()
    tree.lock(tree.insert("abc", [0, 1, 2]).node)
    tree.insert("XY", [3, 4])
    with refused(tree, errors.TooFewEvictable, needed=3, evictable=2, protected=3):
        tree.evict(3)
    assert tree.evict(2) == (3, 4)


def test_evict_nothing_is_nothing():
    tree = WatchedTree()
    tree.insert("abc", [4, 5, 6])
    assert tree.evict(0) == ()
    assert tree.sizes == (3, 0)


def test_leaf_that_got_a_child_is_evicted_after_it():
    tree = WatchedTree()
    tree.insert("ab", [0, 1])
    tree.insert("abcd", [0, 1, 2, 3])
    tree.insert("X", [4])
    assert tree.evict(5) == (2, 3, 0, 1, 4)


@pytest.mark.parametrize(("policy", "order"), [(lru, "bca"), (lfu, "cab"), (fifo, "abc")])
def test_policies_disagree_about_the_leaf_that_goes_first(policy, order):
    """b was inserted twice, so it is the most frequent; a was matched last; c came last."""
    tree = WatchedTree(policy=policy)
    for letters in ("a", "b", "b", "c"):
        tree.insert(letters, ["abc".index(letters)])
    tree.match("aX")
    assert "".join("abc"[page] for page in tree.evict(3)) == order


def test_match_alone_is_no_hit_for_the_count():
    """A prompt that waits is matched again at each try."""
    tree = WatchedTree(policy=lfu)
    tree.insert("a", [0])
    tree.insert("b", [1])
    tree.insert("b", [1])
    for _ in range(5):
        tree.match("aX")
    assert tree.evict(1) == (0,)


def test_evict_asks_about_the_first_leaves_only():
    asked = []

    def counted(node):
        asked.append(node)
        return lru(node)

    tree = RadixTree(policy=counted, report=lambda event: None)
    for token in range(500):
        tree.insert([token], [token])
    for _ in range(500):
        tree.match([0, 0])
    asked.clear()
    assert tree.evict(1) == (1,)
    assert len(asked) <= 5


# --- words ---


def test_every_event_says_its_sentence():
    tree = WatchedTree(page_size=2)
    tree.insert("abcd", [4, 6])
    tree.insert("abXY", [7, 1])
    tree.match("abX")
    tree.lock(3)
    tree.unlock(3)
    tree.evict(6)
    assert [event.sentence for event in tree.events[-4:-1]] == [
        "Node 3 was unlocked once, with its path, nodes 0, 2, 3. 4 tokens more can be evicted.",
        "Leaf 1 was evicted: by lru it was the first of the leaves without a lock. It held 2 tokens, and its pages 6 "
        "are free.",
        "Leaf 3 was evicted: by lru it was the first of the leaves without a lock. It held 2 tokens, and its pages 1 "
        "are free.",
    ]
    assert len({event.kind for event in tree.events}) == 7
    assert not any("{" in event.sentence or event.sentence.startswith(event.kind) for event in tree.events)
