"""The event log alone rebuilds every state: `apply` is each event's meaning as a pure function of the snapshot."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pagedviz.engine import events, tier_replay
from pagedviz.engine import request_events as requests
from pagedviz.engine import tier_events as tier
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


def _returned(queue: tuple[int, ...], block: int, queue_index: int | None) -> tuple[int, ...]:
    """The queue with a block that nobody names any more; as it was where somebody does."""
    return queue if queue_index is None else _inserted(queue, block, queue_index)


def _removed(queue: tuple[int, ...], block: int) -> tuple[int, ...]:
    """The queue without a block, which may be in use already."""
    return tuple(other for other in queue if other != block)


def _entry(row: Row, j: int, block: int | None) -> Row:
    return (*row[:j], block, *row[j + 1 :])


def _in_group(s: Snapshot, group: int | None, tables: Mapping[str, Row]) -> dict[str, Any]:
    """The tables of one group replaced."""
    if not group:
        return {"block_tables": tables}
    return {"group_tables": (*s.group_tables[: group - 1], tables, *s.group_tables[group:])}


def _row_changed(s: Snapshot, seq_id: str, group: int | None, row: Row) -> dict[str, Any]:
    return _in_group(s, group, _with(s.tables(group or 0), **{seq_id: row}))


def _sequence(s: Snapshot, seq_id: str, row: Row, tokens: tuple[Token, ...], last: int, salt: Any) -> dict[str, Any]:
    return {
        "block_tables": _with(s.block_tables, **{seq_id: row}),
        "group_tables": tuple(_with(tables, **{seq_id: ()}) for tables in s.group_tables),
        "host_tables": _with(s.host_tables, **{seq_id: (None,) * len(row)}),
        "tokens": _with(s.tokens, **{seq_id: tokens}),
        "last_scheduled": _with(s.last_scheduled, **{seq_id: last}),
        "salts": _with(s.salts, **{seq_id: salt}),
    }


def _sequence_added(s: Snapshot, e: events.SequenceAdded) -> dict[str, Any]:
    return _sequence(s, e.seq_id, (), (), 0, e.salt)


def _sequence_forked(s: Snapshot, e: events.SequenceForked) -> dict[str, Any]:
    row, tokens = s.block_tables[e.parent][: e.num_skipped], s.tokens[e.parent][: e.num_skipped * s.block_size]
    return _sequence(s, e.seq_id, row, tokens, s.last_scheduled[e.parent], s.salts.get(e.parent))


def _sequence_freed(s: Snapshot, e: events.SequenceFreed) -> dict[str, Any]:
    names = ("block_tables", "host_tables", "tokens", "last_scheduled", "salts", "drafted", "unverified")
    return {
        **{name: _without(getattr(s, name), e.seq_id) for name in names},
        "group_tables": tuple(_without(tables, e.seq_id) for tables in s.group_tables),
    }


def _name_block(s: Snapshot, seq_id: str, block: int, where: str, group: int | None = None) -> dict[str, Any]:
    device, host = (block, None) if where == "device" else (None, block)
    named = _row_changed(s, seq_id, group, (*s.tables(group or 0)[seq_id], device))
    if not group:
        named["host_tables"] = _with(s.host_tables, **{seq_id: (*s.host_tables[seq_id], host)})
    return named


def _block_allocated(s: Snapshot, e: events.BlockAllocated) -> dict[str, Any]:
    return {
        **_name_block(s, e.seq_id, e.block, "device", e.group),
        "ref_counts": _counted(s.ref_counts, e.block, 1),
        "free_blocks": s.free_blocks[1:],
    }


def _null_block_taken(s: Snapshot, e: events.NullBlockTaken) -> dict[str, Any]:
    return {"null_block": e.block, "free_blocks": _removed(s.free_blocks, e.block)}


def _block_out_of_window(s: Snapshot, e: events.BlockOutOfWindow) -> dict[str, Any]:
    row = _entry(s.tables(e.group or 0)[e.seq_id], e.logical_block, e.null_block)
    return {
        **_row_changed(s, e.seq_id, e.group, row),
        "ref_counts": _counted(s.ref_counts, e.block, e.ref_count),
        "free_blocks": _returned(s.free_blocks, e.block, e.queue_index),
    }


def _prefix_skipped(s: Snapshot, e: events.PrefixSkipped) -> dict[str, Any]:
    skipped = _row_changed(s, e.seq_id, e.group, (e.null_block,) * e.num_blocks)
    if e.group:
        return skipped
    return {
        **skipped,
        "host_tables": _with(s.host_tables, **{e.seq_id: (None,) * e.num_blocks}),
        "tokens": _with(s.tokens, **{e.seq_id: s.tokens[e.seq_id] + e.tokens}),
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
        **_name_block(s, e.seq_id, e.block, "device", e.group),
        "tokens": _with(s.tokens, **{e.seq_id: s.tokens[e.seq_id] + (e.tokens if e.computed and not e.group else ())}),
        "ref_counts": _counted(s.ref_counts, e.block, e.ref_count),
        "free_blocks": _removed(s.free_blocks, e.block),
    }


def _block_cached(s: Snapshot, e: events.BlockCached) -> dict[str, Any]:
    salt = None if e.logical_block else s.salts.get(e.seq_id)
    return {"cached": {**s.cached, e.block: CachedBlock(e.block_hash, e.parent_hash, e.tokens, salt, e.group or 0)}}


def _block_evicted(s: Snapshot, e: events.BlockEvicted) -> dict[str, Any]:
    return {"cached": _without(s.cached, e.block)}


def _block_collapsed(s: Snapshot, e: events.BlockCollapsed) -> dict[str, Any]:
    row = _entry(s.tables(e.group or 0)[e.seq_id], e.logical_block, e.target)
    return {
        **_row_changed(s, e.seq_id, e.group, row),
        "ref_counts": _counted(_counted(s.ref_counts, e.target, e.ref_count), e.source, 0),
        "free_blocks": _inserted(_removed(s.free_blocks, e.target), e.source, e.queue_index),
    }


def _written(s: Snapshot, e: events.Written) -> dict[str, Any]:
    drafts = {w.seq_id: len(s.drafted[w.seq_id]) for w in e.writes if w.seq_id in s.drafted}
    return {
        "drafted": {seq_id: tokens for seq_id, tokens in s.drafted.items() if seq_id not in drafts},
        "unverified": _with(s.unverified, **drafts),
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


def _tokens_drafted(s: Snapshot, e: events.TokensDrafted) -> dict[str, Any]:
    return {"drafted": _with(s.drafted, **{e.seq_id: e.tokens})}


def _drafts_verified(s: Snapshot, e: events.DraftsVerified) -> dict[str, Any]:
    return {
        "tokens": _with(s.tokens, **{e.seq_id: s.tokens[e.seq_id][: e.num_tokens]}),
        "unverified": _without(s.unverified, e.seq_id),
    }


def _drafts_dropped(s: Snapshot, e: events.DraftsDropped) -> dict[str, Any]:
    kept = s.drafted[e.seq_id][: -len(e.tokens)]
    return {"drafted": _with(s.drafted, **{e.seq_id: kept}) if kept else _without(s.drafted, e.seq_id)}


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
    row = s.tables(e.group or 0)[e.seq_id][: e.logical_block]
    if e.group:
        return {**_row_changed(s, e.seq_id, e.group, row), counts: _counted(getattr(s, counts), e.block, ref_count)}
    return {
        "block_tables": _with(s.block_tables, **{e.seq_id: row}),
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
    several = max(e.samples, e.beams) > 1
    outputs: dict[str, tuple[Token, ...]] = {f"{e.seq_id}.1" if several else e.seq_id: ()}
    request = RequestState(e.tokens, outputs, e.num_tokens, e.priority, e.salt, e.samples, e.beams)
    waiting = (*s.waiting[: e.queue_index], e.seq_id, *s.waiting[e.queue_index :])
    return {"requests": _with(s.requests, **{e.seq_id: request}), "waiting": waiting}


def _step_started(s: Snapshot, e: requests.StepStarted) -> dict[str, Any]:
    return {"engine_step": e.engine_step, "token_budget": e.token_budget, "scheduled": {}}


def _request_scheduled(s: Snapshot, e: requests.RequestScheduled) -> dict[str, Any]:
    return {"scheduled": _with(s.scheduled, **{e.seq_id: e.num_tokens})}


def _leave(s: Snapshot, seq_id: str) -> dict[str, Any]:
    """A request is in no queue and in no launch any more."""
    queues = {name: tuple(x for x in getattr(s, name) if x != seq_id) for name in ("waiting", "running", "swapped")}
    outputs = s.requests[seq_id].outputs
    return {**queues, "scheduled": {other: count for other, count in s.scheduled.items() if other not in outputs}}


def _to_running(s: Snapshot, e: requests.RequestAdmitted | requests.RequestSwappedIn) -> dict[str, Any]:
    return {**_leave(s, e.seq_id), "running": (*s.running, e.seq_id)}


def _request_preempted(s: Snapshot, e: requests.RequestPreempted) -> dict[str, Any]:
    if e.how == "swap":
        return {**_leave(s, e.seq_id), "swapped": (*s.swapped, e.seq_id)}
    return _to_waiting(s, e)


def _to_waiting(s: Snapshot, e: requests.RequestPreempted | requests.RequestDropped) -> dict[str, Any]:
    return {**_leave(s, e.seq_id), "waiting": (e.seq_id, *s.waiting)}


def request_of(s: Snapshot, seq_id: str) -> str | None:
    """The request that a sequence belongs to, or None."""
    return next((name for name, request in s.requests.items() if seq_id in request.outputs), None)


def _tokens_sampled(s: Snapshot, e: requests.TokensSampled) -> dict[str, Any]:
    grown = dict(s.requests)
    for seq_id, tokens in zip(e.seq_ids, e.tokens, strict=True):
        name = request_of(s, seq_id) or seq_id
        outputs = grown[name].outputs
        grown[name] = grown[name]._replace(outputs={**outputs, seq_id: outputs[seq_id] + tokens})
    return {"requests": grown}


def _request_forked(s: Snapshot, e: requests.RequestForked) -> dict[str, Any]:
    request = s.requests[e.seq_id]
    outputs = {seq_id: request.outputs.get(seq_id, request.output) for seq_id in e.seq_ids}
    return {"requests": _with(s.requests, **{e.seq_id: request._replace(outputs=outputs)})}


def _beams_chosen(s: Snapshot, e: requests.BeamsChosen) -> dict[str, Any]:
    request, chosen = s.requests[e.seq_id], zip(e.seq_ids, e.parents, e.tokens, strict=True)
    outputs = {seq_id: (*request.outputs[parent], token) for seq_id, parent, token in chosen}
    scores = dict(zip(e.seq_ids, e.scores, strict=True))
    return {
        "requests": _with(s.requests, **{e.seq_id: request._replace(outputs=outputs, scores=scores)}),
        "scheduled": {seq_id: count for seq_id, count in s.scheduled.items() if seq_id not in e.pruned},
    }


def _request_gone(s: Snapshot, e: requests.RequestFinished | requests.RequestAborted) -> dict[str, Any]:
    return _leave(s, e.seq_id)


def _tier_changed(s: Snapshot, e: tier.TierEvent) -> dict[str, Any]:
    assert s.tier is not None
    return {"tier": tier_replay.apply(s.tier, e)}


def _pinned(s: Snapshot, e: tier.TierStoreBegun | tier.TierLoadBegun) -> dict[str, Any]:
    """A transfer holds its device blocks: each has one pin more, and is not in the free queue."""
    counts = dict(s.ref_counts)
    for block in e.device_blocks:
        counts[block] = counts.get(block, 0) + 1
    return {
        **_tier_changed(s, e),
        "ref_counts": dict(sorted(counts.items())),
        "free_blocks": tuple(block for block in s.free_blocks if block not in e.device_blocks),
        "pinned": tuple(sorted((*s.pinned, *e.device_blocks))),
    }


def _unpinned(s: Snapshot, e: tier.TierTransferEnded) -> dict[str, Any]:
    """It holds them no more; what was loaded is held until it has its hash."""
    if isinstance(e, tier.TierLoadFinished):
        return _tier_changed(s, e)
    counts, queue = s.ref_counts, s.free_blocks
    # The last first, so that the tail of a chain is evicted first.
    for block, queue_index in reversed(list(zip(e.device_blocks, e.queue_indices, strict=True))):
        counts = _counted(counts, block, counts[block] - 1)
        queue = _returned(queue, block, queue_index)
    pinned = tuple(block for block in s.pinned if block not in e.device_blocks)
    return {**_tier_changed(s, e), "ref_counts": counts, "free_blocks": queue, "pinned": pinned}


def _block_loaded(s: Snapshot, e: tier.BlockLoaded) -> dict[str, Any]:
    return {
        "cached": {**s.cached, e.block: CachedBlock(e.block_hash, e.parent_hash, e.tokens, e.salt)},
        "ref_counts": _counted(s.ref_counts, e.block, 0),
        "free_blocks": _inserted(s.free_blocks, e.block, e.queue_index),
        "pinned": tuple(block for block in s.pinned if block != e.block),
    }


_CHANGES: dict[type[Event], Callable[[Snapshot, Any], dict[str, Any]]] = {
    events.SequenceAdded: _sequence_added,
    events.SequenceForked: _sequence_forked,
    events.SequenceFreed: _sequence_freed,
    events.BlockAllocated: _block_allocated,
    events.NullBlockTaken: _null_block_taken,
    events.BlockOutOfWindow: _block_out_of_window,
    events.PrefixSkipped: _prefix_skipped,
    events.TokensDrafted: _tokens_drafted,
    events.DraftsVerified: _drafts_verified,
    events.DraftsDropped: _drafts_dropped,
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
    requests.RequestForked: _request_forked,
    requests.BeamsChosen: _beams_chosen,
    requests.RequestFinished: _request_gone,
    requests.RequestAborted: _request_gone,
    tier.TierEvicted: _tier_changed,
    tier.TierTouched: _tier_changed,
    tier.TierStoreBegun: _pinned,
    tier.TierStoreFinished: _unpinned,
    tier.TierStoreFailed: _unpinned,
    tier.TierStoreAborted: _unpinned,
    tier.TierLoadBegun: _pinned,
    tier.TierLoadFinished: _unpinned,
    tier.TierLoadFailed: _unpinned,
    tier.TierLoadAborted: _unpinned,
    tier.BlockLoaded: _block_loaded,
}
