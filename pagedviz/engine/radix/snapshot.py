"""The state of the radix tree, frozen. Its nodes are frozen too: the tree replaces them, so a snapshot shares them."""

from collections.abc import Mapping
from dataclasses import dataclass

from pagedviz.engine.log.events.base import Token

ROOT = 0


@dataclass(frozen=True)
class RadixNode:
    """A run of cached tokens, which continues the run of its parent. The root's run is empty.

    `pages` has one page for each `page_size` tokens. `lock_count` counts the locks at this node and below it.
    `last_used` is the time of the last match or insert through the node, `inserted` the time at which its tokens were
    inserted. `hit_count` counts the inserts through it. A match does not count, because a waiting prompt is matched
    again at each try.
    """

    parent: int | None
    salt: str | None
    tokens: tuple[Token, ...]
    pages: tuple[int, ...]
    lock_count: int
    last_used: int
    inserted: int
    hit_count: int


@dataclass(frozen=True)
class RadixSnapshot:
    """The whole state of the tree: its nodes by id, and how many tokens can be evicted and how many are locked."""

    page_size: int
    evictable_size: int
    protected_size: int
    nodes: Mapping[int, RadixNode]

    def children(self, node: int) -> list[int]:
        """The ids of a node's children, in any order."""
        return [child for child, run in self.nodes.items() if run.parent == node]
