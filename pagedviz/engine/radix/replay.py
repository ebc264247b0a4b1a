"""The tree's events alone rebuild it: `apply` is a pure function of a snapshot and an event."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from pagedviz.engine.radix import events
from pagedviz.engine.radix.snapshot import RadixNode, RadixSnapshot


def apply(before: RadixSnapshot, event: events.RadixEvent) -> RadixSnapshot:
    """The tree after `event`. `before` is not changed."""
    return _CHANGES[type(event)](before, event)


def _with(s: RadixSnapshot, changes: dict[int, RadixNode], *, evictable: int = 0, protected: int = 0) -> RadixSnapshot:
    """The tree with some nodes changed or added, and both sizes changed by so many tokens."""
    return dataclasses.replace(
        s,
        nodes={**s.nodes, **changes},
        evictable_size=s.evictable_size + evictable,
        protected_size=s.protected_size + protected,
    )


def _used(s: RadixSnapshot, e: events.RadixMatched | events.RadixRevisited, hits: int) -> RadixSnapshot:
    runs = {node: s.nodes[node] for node in e.nodes}
    return _with(
        s, {n: dataclasses.replace(run, last_used=e.time, hit_count=run.hit_count + hits) for n, run in runs.items()}
    )


def _matched(s: RadixSnapshot, e: events.RadixMatched) -> RadixSnapshot:
    return _used(s, e, hits=0)


def _revisited(s: RadixSnapshot, e: events.RadixRevisited) -> RadixSnapshot:
    return _used(s, e, hits=1)


def _inserted(s: RadixSnapshot, e: events.RadixInserted) -> RadixSnapshot:
    leaf = RadixNode(e.parent, e.salt, e.tokens, e.pages, 0, last_used=e.time, inserted=e.time, hit_count=1)
    return _with(s, {e.node: leaf}, evictable=len(e.tokens))


def _split(s: RadixSnapshot, e: events.RadixSplit) -> RadixSnapshot:
    run, n, num_pages = s.nodes[e.node], e.num_tokens, e.num_tokens // s.page_size
    front = dataclasses.replace(run, tokens=run.tokens[:n], pages=run.pages[:num_pages])
    rest = dataclasses.replace(run, parent=e.upper, tokens=run.tokens[n:], pages=run.pages[num_pages:])
    return _with(s, {e.upper: front, e.node: rest})


def _counted(s: RadixSnapshot, nodes: Iterable[int], by: int) -> dict[int, RadixNode]:
    runs = {node: s.nodes[node] for node in nodes}
    return {node: dataclasses.replace(run, lock_count=run.lock_count + by) for node, run in runs.items()}


def _locked(s: RadixSnapshot, e: events.RadixLocked) -> RadixSnapshot:
    return _with(s, _counted(s, e.nodes, 1), evictable=-e.num_tokens, protected=e.num_tokens)


def _unlocked(s: RadixSnapshot, e: events.RadixUnlocked) -> RadixSnapshot:
    return _with(s, _counted(s, e.nodes, -1), evictable=e.num_tokens, protected=-e.num_tokens)


def _evicted(s: RadixSnapshot, e: events.RadixEvicted) -> RadixSnapshot:
    kept = {node: run for node, run in s.nodes.items() if node != e.node}
    return _with(dataclasses.replace(s, nodes=kept), {}, evictable=-len(e.tokens))


_CHANGES: dict[type[events.RadixEvent], Callable[[RadixSnapshot, Any], RadixSnapshot]] = {
    events.RadixMatched: _matched,
    events.RadixRevisited: _revisited,
    events.RadixInserted: _inserted,
    events.RadixSplit: _split,
    events.RadixLocked: _locked,
    events.RadixUnlocked: _unlocked,
    events.RadixEvicted: _evicted,
}
