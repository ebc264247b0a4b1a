"""Which leaf of the radix tree is evicted first. A policy is one function. The leaf with the smallest value is evicted.

While a node is in the tree, its value never falls; the tree's queue of leaves relies on that.
"""

from collections.abc import Callable

from pagedviz.engine.radix.snapshot import RadixNode

EvictionPolicy = Callable[[RadixNode], tuple[int, ...]]


def lru(node: RadixNode) -> tuple[int, ...]:
    """The leaf that was matched or inserted the longest time ago.

    When a match splits a node, only the half that matched counts as used. In SGLang both halves do, in mini-sglang
    neither.
    """
    return (node.last_used,)


def lfu(node: RadixNode) -> tuple[int, ...]:
    """The leaf that the fewest inserts passed through; of equal ones, the least recently used."""
    return (node.hit_count, node.last_used)


def fifo(node: RadixNode) -> tuple[int, ...]:
    """The leaf with the oldest tokens, however often they were used.

    Both halves of a split keep the time of their tokens. In SGLang the front half counts as new.
    """
    return (node.inserted,)
