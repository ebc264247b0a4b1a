"""The event log alone rebuilds every state: `apply` is each event's meaning as a pure function of the snapshot."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pagedviz.engine import events
from pagedviz.engine import request_events as requests
from pagedviz.engine.events import Event, Token
from pagedviz.engine.snapshot import CachedBlock, RequestState, Row, Snapshot

K = TypeVar("K")
V = TypeVar("V")


def apply(before: Snapshot, event: Event) -> Snapshot:
    """The state after `event`. `before` is left as it is."""
    change = _CHANGES.get(type(event))
    return dataclasses.replace(before, **change(before, event)) if change else before


def _with(mapping: Mapping[K, V], /, **changes: V) -> dict[Any, V]:
    return {**mapping, **changes}


def _without(mapping: Mapping[K, V], key: K) -> dict[K, V]:
    return {k: v for k, v in mapping.items() if k != key}


def _counted(counts: Mapping[int, int], block: int, ref_count: int) -> dict[int, int]:
    """The counts with one block's changed. A block in no use is not listed."""
    changed = {b: count for b, count in counts.items() if b != block}
    if ref_count:
        changed[block] = ref_count
    return dict(sorted(changed.items()))


def _inserted(queue: tuple[int, ...], block: int, queue_index: int) -> tuple[int, ...]:
    return (*queue[:queue_index], block, *queue[queue_index:])


def _removed(queue: tuple[int, ...], block: int) -> tuple[int, ...]:
    """The queue without a block, which may be in use already."""
    return tuple(other for other in queue if other != block)


def _entry(row: Row, j: int, block: int | None) -> Row:
    return (*row[:j], block, *row[j + 1 :])


def _sequence_added(s: Snapshot, e: events.SequenceAdded) -> dict[str, Any]:
    return {
        "block_tables": _with(s.block_tables, **{e.seq_id: ()}),
        "host_tables": _with(s.host_tables, **{e.seq_id: ()}),
        "tokens": _with(s.tokens, **{e.seq_id: ()}),
        "last_scheduled": _with(s.last_scheduled, **{e.seq_id: 0}),
        "salts": _with(s.salts, **{e.seq_id: e.salt}),
    }


def _sequence_forked(s: Snapshot, e: events.SequenceForked) -> dict[str, Any]:
    return {
        "block_tables": _with(s.block_tables, **{e.seq_id: ()}),
        "host_tables": _with(s.host_tables, **{e.seq_id: ()}),
        "tokens": _with(s.tokens, **{e.seq_id: ()}),
        "last_scheduled": _with(s.last_scheduled, **{e.seq_id: s.last_scheduled[e.parent]}),
        "salts": _with(s.salts, **{e.seq_id: s.salts.get(e.parent)}),
    }


def _sequence_freed(s: Snapshot, e: events.SequenceFreed) -> dict[str, Any]:
    names = ("block_tables", "host_tables", "tokens", "last_scheduled", "salts")
    return {name: _without(getattr(s, name), e.seq_id) for name in names}


def _name_block(s: Snapshot, seq_id: str, block: int, where: str) -> dict[str, Any]:
    device, host = (block, None) if where == "device" else (None, block)
    return {
        "block_tables": _with(s.block_tables, **{seq_id: (*s.block_tables[seq_id], device)}),
        "host_tables": _with(s.host_tables, **{seq_id: (*s.host_tables[seq_id], host)}),
    }


def _block_allocated(s: Snapshot, e: events.BlockAllocated) -> dict[str, Any]:
    return {
        **_name_block(s, e.seq_id, e.block, "device"),
        "ref_counts": _counted(s.ref_counts, e.block, 1),
        "free_blocks": s.free_blocks[1:],
    }


def _block_shared(s: Snapshot, e: events.BlockShared) -> dict[str, Any]:
    counts = "ref_counts" if e.where == "device" else "host_ref_counts"
    return {
        **_name_block(s, e.seq_id, e.block, e.where),
        "tokens": _with(s.tokens, **{e.seq_id: s.tokens[e.seq_id] + e.tokens}),
        counts: _counted(getattr(s, counts), e.block, e.ref_count),
    }


def _block_hit(s: Snapshot, e: events.BlockHit) -> dict[str, Any]:
    return {
        **_name_block(s, e.seq_id, e.block, "device"),
        "tokens": _with(s.tokens, **{e.seq_id: s.tokens[e.seq_id] + (e.tokens if e.computed else ())}),
        "ref_counts": _counted(s.ref_counts, e.block, e.ref_count),
        "free_blocks": _removed(s.free_blocks, e.block),
    }


def _block_cached(s: Snapshot, e: events.BlockCached) -> dict[str, Any]:
    salt = None if e.logical_block else s.salts.get(e.seq_id)
    return {"cached": {**s.cached, e.block: CachedBlock(e.block_hash, e.parent_hash, e.tokens, salt)}}


def _block_evicted(s: Snapshot, e: events.BlockEvicted) -> dict[str, Any]:
    return {"cached": _without(s.cached, e.block)}


def _block_collapsed(s: Snapshot, e: events.BlockCollapsed) -> dict[str, Any]:
    row = _entry(s.block_tables[e.seq_id], e.logical_block, e.target)
    return {
        "block_tables": _with(s.block_tables, **{e.seq_id: row}),
        "ref_counts": _counted(_counted(s.ref_counts, e.target, e.ref_count), e.source, 0),
        "free_blocks": _inserted(_removed(s.free_blocks, e.target), e.source, e.queue_index),
    }


def _written(s: Snapshot, e: events.Written) -> dict[str, Any]:
    return {
        "tokens": _with(s.tokens, **{w.seq_id: tokens_up_to(s, w.seq_id, w.position) + w.tokens for w in e.writes}),
        "last_scheduled": _with(s.last_scheduled, **{w.seq_id: e.engine_step for w in e.writes}),
    }


def tokens_up_to(s: Snapshot, seq_id: str, position: int) -> tuple[Token, ...]:
    """A sequence's tokens, and behind them those of the cached blocks that it waited for, up to `position`."""
    tokens, size = s.tokens[seq_id], s.block_size
    for block in s.block_tables[seq_id][len(tokens) // size : position // size]:
        if block is not None and block in s.cached:
            tokens += s.cached[block].tokens
    return tokens


def _block_copied(s: Snapshot, e: events.BlockCopied) -> dict[str, Any]:
    return {
        "free_blocks": s.free_blocks[1:],
        "pinned": tuple(sorted((*s.pinned, e.target))),
        "ref_counts": _counted(s.ref_counts, e.target, 1),
    }


def _entry_rewritten(s: Snapshot, e: events.EntryRewritten) -> dict[str, Any]:
    row = _entry(s.block_tables[e.seq_id], e.logical_block, e.target)
    return {
        "block_tables": _with(s.block_tables, **{e.seq_id: row}),
        "pinned": tuple(block for block in s.pinned if block != e.target),
        "ref_counts": _counted(s.ref_counts, e.source, e.ref_count),
    }


def _block_let_go(s: Snapshot, e: events.BlockReleased | events.BlockFreed, ref_count: int) -> dict[str, Any]:
    counts = "ref_counts" if e.where == "device" else "host_ref_counts"
    return {
        "block_tables": _with(s.block_tables, **{e.seq_id: s.block_tables[e.seq_id][: e.logical_block]}),
        "host_tables": _with(s.host_tables, **{e.seq_id: s.host_tables[e.seq_id][: e.logical_block]}),
        "tokens": _with(s.tokens, **{e.seq_id: s.tokens[e.seq_id][: e.num_tokens]}),
        counts: _counted(getattr(s, counts), e.block, ref_count),
    }


def _block_released(s: Snapshot, e: events.BlockReleased) -> dict[str, Any]:
    return _block_let_go(s, e, e.ref_count)


def _block_freed(s: Snapshot, e: events.BlockFreed) -> dict[str, Any]:
    queue = "free_blocks" if e.where == "device" else "host_free_blocks"
    return {**_block_let_go(s, e, 0), queue: _inserted(getattr(s, queue), e.block, e.queue_index)}


def _moved(tables: Mapping[str, Row], seq_ids: tuple[str, ...], place: Mapping[str, int], block: int | None) -> Any:
    return _with(tables, **{seq_id: _entry(tables[seq_id], place[seq_id], block) for seq_id in seq_ids})


def _block_spilled(s: Snapshot, e: events.BlockSpilled) -> dict[str, Any]:
    place = {seq_id: s.block_tables[seq_id].index(e.block) for seq_id in e.seq_ids}
    return {
        "block_tables": _moved(s.block_tables, e.seq_ids, place, None),
        "host_tables": _moved(s.host_tables, e.seq_ids, place, e.host_block),
        "host_ref_counts": _counted(s.host_ref_counts, e.host_block, s.ref_counts[e.block]),
        "ref_counts": _counted(s.ref_counts, e.block, 0),
        "host_free_blocks": s.host_free_blocks[1:],
        "free_blocks": _inserted(s.free_blocks, e.block, e.queue_index),
    }


def _block_reloaded(s: Snapshot, e: events.BlockReloaded) -> dict[str, Any]:
    place = {seq_id: s.host_tables[seq_id].index(e.host_block) for seq_id in e.seq_ids}
    return {
        "block_tables": _moved(s.block_tables, e.seq_ids, place, e.block),
        "host_tables": _moved(s.host_tables, e.seq_ids, place, None),
        "ref_counts": _counted(s.ref_counts, e.block, s.host_ref_counts[e.host_block]),
        "host_ref_counts": _counted(s.host_ref_counts, e.host_block, 0),
        "free_blocks": s.free_blocks[1:],
        "host_free_blocks": _inserted(s.host_free_blocks, e.host_block, e.queue_index),
    }


def _request_submitted(s: Snapshot, e: requests.RequestSubmitted) -> dict[str, Any]:
    request = RequestState(e.tokens, (), e.num_tokens, e.priority, e.salt)
    waiting = (*s.waiting[: e.queue_index], e.seq_id, *s.waiting[e.queue_index :])
    return {"requests": _with(s.requests, **{e.seq_id: request}), "waiting": waiting}


def _step_started(s: Snapshot, e: requests.StepStarted) -> dict[str, Any]:
    return {"engine_step": e.engine_step, "token_budget": e.token_budget, "scheduled": {}}


def _request_scheduled(s: Snapshot, e: requests.RequestScheduled) -> dict[str, Any]:
    return {"scheduled": _with(s.scheduled, **{e.seq_id: e.num_tokens})}


def _leave(s: Snapshot, seq_id: str) -> dict[str, Any]:
    """A request is in no queue and in no launch any more."""
    queues = {name: tuple(x for x in getattr(s, name) if x != seq_id) for name in ("waiting", "running", "swapped")}
    return {**queues, "scheduled": _without(s.scheduled, seq_id)}


def _to_running(s: Snapshot, e: requests.RequestAdmitted | requests.RequestSwappedIn) -> dict[str, Any]:
    return {**_leave(s, e.seq_id), "running": (*s.running, e.seq_id)}


def _request_preempted(s: Snapshot, e: requests.RequestPreempted) -> dict[str, Any]:
    if e.how == "swap":
        return {**_leave(s, e.seq_id), "swapped": (*s.swapped, e.seq_id)}
    return _to_waiting(s, e)


def _to_waiting(s: Snapshot, e: requests.RequestPreempted | requests.RequestDropped) -> dict[str, Any]:
    return {**_leave(s, e.seq_id), "waiting": (e.seq_id, *s.waiting)}


def _tokens_sampled(s: Snapshot, e: requests.TokensSampled) -> dict[str, Any]:
    grown = {
        seq_id: s.requests[seq_id]._replace(output=(*s.requests[seq_id].output, token))
        for seq_id, token in zip(e.seq_ids, e.tokens, strict=True)
    }
    return {"requests": _with(s.requests, **grown)}


def _request_gone(s: Snapshot, e: requests.RequestFinished | requests.RequestAborted) -> dict[str, Any]:
    return _leave(s, e.seq_id)


_CHANGES: dict[type[Event], Callable[[Snapshot, Any], dict[str, Any]]] = {
    events.SequenceAdded: _sequence_added,
    events.SequenceForked: _sequence_forked,
    events.SequenceFreed: _sequence_freed,
    events.BlockAllocated: _block_allocated,
    events.BlockShared: _block_shared,
    events.BlockHit: _block_hit,
    events.BlockCached: _block_cached,
    events.BlockEvicted: _block_evicted,
    events.BlockCollapsed: _block_collapsed,
    events.TokenWritten: _written,
    events.TokensWritten: _written,
    events.BatchWritten: _written,
    events.BlockCopied: _block_copied,
    events.EntryRewritten: _entry_rewritten,
    events.BlockReleased: _block_released,
    events.BlockFreed: _block_freed,
    events.BlockSpilled: _block_spilled,
    events.BlockReloaded: _block_reloaded,
    requests.RequestSubmitted: _request_submitted,
    requests.StepStarted: _step_started,
    requests.RequestAdmitted: _to_running,
    requests.RequestScheduled: _request_scheduled,
    requests.RequestPreempted: _request_preempted,
    requests.RequestSwappedIn: _to_running,
    requests.RequestDropped: _to_waiting,
    requests.TokensSampled: _tokens_sampled,
    requests.RequestFinished: _request_gone,
    requests.RequestAborted: _request_gone,
}
