"""The event log alone rebuilds every state: `apply` is each event's meaning as a pure function of the snapshot."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from pagedviz.engine import events, replay_requests, replay_transfers
from pagedviz.engine.events import Event, Token
from pagedviz.engine.replay_tools import counted, inserted, removed, returned, with_, without
from pagedviz.engine.snapshot import CachedBlock, Row, Snapshot


def apply(before: Snapshot, event: Event) -> Snapshot:
    """The state after `event`. `before` is left as it is."""
    change = _CHANGES.get(type(event))
    return dataclasses.replace(before, **change(before, event)) if change else before


def _entry(row: Row, j: int, block: int | None) -> Row:
    return (*row[:j], block, *row[j + 1 :])


def _in_group(s: Snapshot, group: int | None, tables: Mapping[str, Row]) -> dict[str, Any]:
    """The tables of one group replaced."""
    if not group:
        return {"block_tables": tables}
    return {"group_tables": (*s.group_tables[: group - 1], tables, *s.group_tables[group:])}


def _row_changed(s: Snapshot, seq_id: str, group: int | None, row: Row) -> dict[str, Any]:
    return _in_group(s, group, with_(s.tables(group or 0), **{seq_id: row}))


def _sequence(s: Snapshot, seq_id: str, row: Row, tokens: tuple[Token, ...], last: int, salt: Any) -> dict[str, Any]:
    return {
        "block_tables": with_(s.block_tables, **{seq_id: row}),
        "group_tables": tuple(with_(tables, **{seq_id: ()}) for tables in s.group_tables),
        "host_tables": with_(s.host_tables, **{seq_id: (None,) * len(row)}),
        "tokens": with_(s.tokens, **{seq_id: tokens}),
        "last_scheduled": with_(s.last_scheduled, **{seq_id: last}),
        "salts": with_(s.salts, **{seq_id: salt}),
    }


def _sequence_added(s: Snapshot, e: events.SequenceAdded) -> dict[str, Any]:
    return _sequence(s, e.seq_id, (), (), 0, e.salt)


def _sequence_forked(s: Snapshot, e: events.SequenceForked) -> dict[str, Any]:
    row, tokens = s.block_tables[e.parent][: e.num_skipped], s.tokens[e.parent][: e.num_skipped * s.block_size]
    return _sequence(s, e.seq_id, row, tokens, s.last_scheduled[e.parent], s.salts.get(e.parent))


def _sequence_freed(s: Snapshot, e: events.SequenceFreed) -> dict[str, Any]:
    names = ("block_tables", "host_tables", "tokens", "last_scheduled", "salts", "drafted", "unverified")
    return {
        **{name: without(getattr(s, name), e.seq_id) for name in names},
        "group_tables": tuple(without(tables, e.seq_id) for tables in s.group_tables),
    }


def _name_block(s: Snapshot, seq_id: str, block: int, where: str, group: int | None = None) -> dict[str, Any]:
    device, host = (block, None) if where == "device" else (None, block)
    named = _row_changed(s, seq_id, group, (*s.tables(group or 0)[seq_id], device))
    if not group:
        named["host_tables"] = with_(s.host_tables, **{seq_id: (*s.host_tables[seq_id], host)})
    return named


def _block_allocated(s: Snapshot, e: events.BlockAllocated) -> dict[str, Any]:
    return {
        **_name_block(s, e.seq_id, e.block, "device", e.group),
        "ref_counts": counted(s.ref_counts, e.block, 1),
        "free_blocks": s.free_blocks[1:],
    }


def _null_block_taken(s: Snapshot, e: events.NullBlockTaken) -> dict[str, Any]:
    return {"null_block": e.block, "free_blocks": removed(s.free_blocks, e.block)}


def _block_out_of_window(s: Snapshot, e: events.BlockOutOfWindow) -> dict[str, Any]:
    row = _entry(s.tables(e.group or 0)[e.seq_id], e.logical_block, e.null_block)
    return {
        **_row_changed(s, e.seq_id, e.group, row),
        "ref_counts": counted(s.ref_counts, e.block, e.ref_count),
        "free_blocks": returned(s.free_blocks, e.block, e.queue_index),
    }


def _prefix_skipped(s: Snapshot, e: events.PrefixSkipped) -> dict[str, Any]:
    skipped = _row_changed(s, e.seq_id, e.group, (e.null_block,) * e.num_blocks)
    if e.group:
        return skipped
    return {
        **skipped,
        "host_tables": with_(s.host_tables, **{e.seq_id: (None,) * e.num_blocks}),
        "tokens": with_(s.tokens, **{e.seq_id: s.tokens[e.seq_id] + e.tokens}),
    }


def _block_shared(s: Snapshot, e: events.BlockShared) -> dict[str, Any]:
    counts = "ref_counts" if e.where == "device" else "host_ref_counts"
    return {
        **_name_block(s, e.seq_id, e.block, e.where),
        "tokens": with_(s.tokens, **{e.seq_id: s.tokens[e.seq_id] + e.tokens}),
        counts: counted(getattr(s, counts), e.block, e.ref_count),
    }


def _block_hit(s: Snapshot, e: events.BlockHit) -> dict[str, Any]:
    return {
        **_name_block(s, e.seq_id, e.block, "device", e.group),
        "tokens": with_(s.tokens, **{e.seq_id: s.tokens[e.seq_id] + (e.tokens if e.computed and not e.group else ())}),
        "ref_counts": counted(s.ref_counts, e.block, e.ref_count),
        "free_blocks": removed(s.free_blocks, e.block),
    }


def _block_cached(s: Snapshot, e: events.BlockCached) -> dict[str, Any]:
    salt = None if e.logical_block else s.salts.get(e.seq_id)
    return {"cached": {**s.cached, e.block: CachedBlock(e.block_hash, e.parent_hash, e.tokens, salt, e.group or 0)}}


def _block_evicted(s: Snapshot, e: events.BlockEvicted) -> dict[str, Any]:
    return {"cached": without(s.cached, e.block)}


def _block_collapsed(s: Snapshot, e: events.BlockCollapsed) -> dict[str, Any]:
    row = _entry(s.tables(e.group or 0)[e.seq_id], e.logical_block, e.target)
    return {
        **_row_changed(s, e.seq_id, e.group, row),
        "ref_counts": counted(counted(s.ref_counts, e.target, e.ref_count), e.source, 0),
        "free_blocks": inserted(removed(s.free_blocks, e.target), e.source, e.queue_index),
    }


def _written(s: Snapshot, e: events.Written) -> dict[str, Any]:
    drafts = {w.seq_id: len(s.drafted[w.seq_id]) for w in e.writes if w.seq_id in s.drafted}
    return {
        "drafted": {seq_id: tokens for seq_id, tokens in s.drafted.items() if seq_id not in drafts},
        "unverified": with_(s.unverified, **drafts),
        "tokens": with_(s.tokens, **{w.seq_id: tokens_up_to(s, w.seq_id, w.position) + w.tokens for w in e.writes}),
        "last_scheduled": with_(s.last_scheduled, **{w.seq_id: e.engine_step for w in e.writes}),
    }


def tokens_up_to(s: Snapshot, seq_id: str, position: int) -> tuple[Token, ...]:
    """A sequence's tokens, and behind them those of the cached blocks that it waited for, up to `position`."""
    tokens, size = s.tokens[seq_id], s.block_size
    for block in s.block_tables[seq_id][len(tokens) // size : position // size]:
        if block is not None and block in s.cached:
            tokens += s.cached[block].tokens
    return tokens


def _tokens_drafted(s: Snapshot, e: events.TokensDrafted) -> dict[str, Any]:
    return {"drafted": with_(s.drafted, **{e.seq_id: e.tokens})}


def _drafts_verified(s: Snapshot, e: events.DraftsVerified) -> dict[str, Any]:
    return {
        "tokens": with_(s.tokens, **{e.seq_id: s.tokens[e.seq_id][: e.num_tokens]}),
        "unverified": without(s.unverified, e.seq_id),
    }


def _drafts_dropped(s: Snapshot, e: events.DraftsDropped) -> dict[str, Any]:
    kept = s.drafted[e.seq_id][: -len(e.tokens)]
    return {"drafted": with_(s.drafted, **{e.seq_id: kept}) if kept else without(s.drafted, e.seq_id)}


def _block_copied(s: Snapshot, e: events.BlockCopied) -> dict[str, Any]:
    return {
        "free_blocks": s.free_blocks[1:],
        "pinned": tuple(sorted((*s.pinned, e.target))),
        "ref_counts": counted(s.ref_counts, e.target, 1),
    }


def _entry_rewritten(s: Snapshot, e: events.EntryRewritten) -> dict[str, Any]:
    row = _entry(s.block_tables[e.seq_id], e.logical_block, e.target)
    return {
        "block_tables": with_(s.block_tables, **{e.seq_id: row}),
        "pinned": tuple(block for block in s.pinned if block != e.target),
        "ref_counts": counted(s.ref_counts, e.source, e.ref_count),
    }


def _block_let_go(s: Snapshot, e: events.BlockReleased | events.BlockFreed, ref_count: int) -> dict[str, Any]:
    counts = "ref_counts" if e.where == "device" else "host_ref_counts"
    row = s.tables(e.group or 0)[e.seq_id][: e.logical_block]
    if e.group:
        return {**_row_changed(s, e.seq_id, e.group, row), counts: counted(getattr(s, counts), e.block, ref_count)}
    return {
        "block_tables": with_(s.block_tables, **{e.seq_id: row}),
        "host_tables": with_(s.host_tables, **{e.seq_id: s.host_tables[e.seq_id][: e.logical_block]}),
        "tokens": with_(s.tokens, **{e.seq_id: s.tokens[e.seq_id][: e.num_tokens]}),
        counts: counted(getattr(s, counts), e.block, ref_count),
    }


def _block_released(s: Snapshot, e: events.BlockReleased) -> dict[str, Any]:
    return _block_let_go(s, e, e.ref_count)


def _block_freed(s: Snapshot, e: events.BlockFreed) -> dict[str, Any]:
    queue = "free_blocks" if e.where == "device" else "host_free_blocks"
    return {**_block_let_go(s, e, 0), queue: inserted(getattr(s, queue), e.block, e.queue_index)}


def _moved(tables: Mapping[str, Row], seq_ids: tuple[str, ...], place: Mapping[str, int], block: int | None) -> Any:
    return with_(tables, **{seq_id: _entry(tables[seq_id], place[seq_id], block) for seq_id in seq_ids})


def _block_spilled(s: Snapshot, e: events.BlockSpilled) -> dict[str, Any]:
    place = {seq_id: s.block_tables[seq_id].index(e.block) for seq_id in e.seq_ids}
    return {
        "block_tables": _moved(s.block_tables, e.seq_ids, place, None),
        "host_tables": _moved(s.host_tables, e.seq_ids, place, e.host_block),
        "host_ref_counts": counted(s.host_ref_counts, e.host_block, s.ref_counts[e.block]),
        "ref_counts": counted(s.ref_counts, e.block, 0),
        "host_free_blocks": s.host_free_blocks[1:],
        "free_blocks": inserted(s.free_blocks, e.block, e.queue_index),
    }


def _block_reloaded(s: Snapshot, e: events.BlockReloaded) -> dict[str, Any]:
    place = {seq_id: s.host_tables[seq_id].index(e.host_block) for seq_id in e.seq_ids}
    return {
        "block_tables": _moved(s.block_tables, e.seq_ids, place, e.block),
        "host_tables": _moved(s.host_tables, e.seq_ids, place, None),
        "ref_counts": counted(s.ref_counts, e.block, s.host_ref_counts[e.host_block]),
        "host_ref_counts": counted(s.host_ref_counts, e.host_block, 0),
        "free_blocks": s.free_blocks[1:],
        "host_free_blocks": inserted(s.host_free_blocks, e.host_block, e.queue_index),
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
    **replay_requests.CHANGES,
    **replay_transfers.CHANGES,
}
