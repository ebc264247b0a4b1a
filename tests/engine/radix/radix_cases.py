"""A radix tree that is watched: each event it reports is checked against every invariant and against the policy."""

import contextlib
from collections.abc import Iterator

import pytest

from pagedviz.engine.log.errors import CacheError
from pagedviz.engine.radix import invariants
from pagedviz.engine.radix.events import RadixEvent, RadixEvicted
from pagedviz.engine.radix.eviction import EvictionPolicy, lru
from pagedviz.engine.radix.snapshot import ROOT, RadixSnapshot
from pagedviz.engine.radix.tree import RadixTree


def free_leaves(state: RadixSnapshot) -> list[int]:
    return [n for n, run in state.nodes.items() if n != ROOT and not run.lock_count and not state.children(n)]


class WatchedTree(RadixTree):
    """The real tree; `events` is all that it has reported."""

    def __init__(self, page_size: int = 1, policy: EvictionPolicy = lru) -> None:
        super().__init__(page_size=page_size, policy=policy, report=self._watch)
        self.events: list[RadixEvent] = []
        self._before = self.snapshot()

    def _watch(self, event: RadixEvent) -> None:
        after = self.snapshot()
        assert invariants.broken(self._before, event, after) == []
        if isinstance(event, RadixEvicted):
            runs = self._before.nodes
            assert self.policy(runs[event.node]) == min(self.policy(runs[n]) for n in free_leaves(self._before))
        self.events.append(event)
        self._before = after

    @property
    def sizes(self) -> tuple[int, int]:
        """Tokens that can be evicted, and that are locked."""
        return self.evictable_size, self.protected_size

    def run(self, node: int) -> tuple[object, ...]:
        return self.snapshot().nodes[node].tokens

    def kinds_since(self, number: int) -> list[str]:
        """What has been reported after the first `number` events."""
        return [event.kind for event in self.events[number:]]


@contextlib.contextmanager
def refused(tree: WatchedTree, error: type[CacheError], **numbers: object) -> Iterator[None]:
    """What runs inside is refused with this error and these numbers, and neither changes nor reports anything."""
    before, reported = tree.snapshot(), len(tree.events)
    with pytest.raises(error) as raised:
        yield
    assert type(raised.value) is error
    assert raised.value.numbers == numbers
    assert tree.snapshot() == before
    assert len(tree.events) == reported
