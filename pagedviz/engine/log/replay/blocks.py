"""How the events of blocks and sequences change the state."""

from collections.abc import Callable
from typing import Any

from pagedviz.engine.log.events.base import Event, Token
from pagedviz.engine.log.events.blocks import (
    BatchWritten,
    BlockAllocated,
    BlockCached,
    BlockCollapsed,
    BlockCopied,
    BlockEvicted,
    BlockFreed,
    BlockHit,
    BlockReleased,
    BlockShared,
    EntryRewritten,
    SequenceAdded,
    SequenceForked,
    SequenceFreed,
    TokensWritten,
    TokenWritten,
    Written,
)
from pagedviz.engine.log.replay.base import counted, entry, inserted, removed, row_changed, with_, without
from pagedviz.engine.log.snapshot import CachedBlock, Snapshot, TableRow


def _sequence(
    s: Snapshot, seq_id: str, row: TableRow, tokens: tuple[Token, ...], last: int, salt: Any
) -> dict[str, Any]:
    return {
        "block_tables": with_(s.block_tables, **{seq_id: row}),
        "group_tables": tuple(with_(tables, **{seq_id: ()}) for tables in s.group_tables),
        "host_tables": with_(s.host_tables, **{seq_id: (None,) * len(row)}),
        "tokens": with_(s.tokens, **{seq_id: tokens}),
        "last_scheduled": with_(s.last_scheduled, **{seq_id: last}),
        "salts": with_(s.salts, **{seq_id: salt}),
    }


def _sequence_added(s: Snapshot, e: SequenceAdded) -> dict[str, Any]:
    return _sequence(s, e.seq_id, (), (), 0, e.salt)


def _sequence_forked(s: Snapshot, e: SequenceForked) -> dict[str, Any]:
    row, tokens = s.block_tables[e.parent][: e.num_skipped], s.tokens[e.parent][: e.num_skipped * s.block_size]
    return _sequence(s, e.seq_id, row, tokens, s.last_scheduled[e.parent], s.salts.get(e.parent))


def _sequence_freed(s: Snapshot, e: SequenceFreed) -> dict[str, Any]:
    names = ("block_tables", "host_tables", "tokens", "last_scheduled", "salts", "drafted", "unverified")
    return {
        **{name: without(getattr(s, name), e.seq_id) for name in names},
        "group_tables": tuple(without(tables, e.seq_id) for tables in s.group_tables),
    }


def _name_block(s: Snapshot, seq_id: str, block: int, where: str, group: int | None = None) -> dict[str, Any]:
    device, host = (block, None) if where == "device" else (None, block)
    named = row_changed(s, seq_id, group, (*s.tables(group or 0)[seq_id], device))
    if not group:
        named["host_tables"] = with_(s.host_tables, **{seq_id: (*s.host_tables[seq_id], host)})
    return named


def _block_allocated(s: Snapshot, e: BlockAllocated) -> dict[str, Any]:
    return {
        **_name_block(s, e.seq_id, e.block, "device", e.group),
        "ref_counts": counted(s.ref_counts, e.block, 1),
        "free_blocks": s.free_blocks[1:],
    }


def _block_shared(s: Snapshot, e: BlockShared) -> dict[str, Any]:
    counts = "ref_counts" if e.where == "device" else "host_ref_counts"
    return {
        **_name_block(s, e.seq_id, e.block, e.where),
        "tokens": with_(s.tokens, **{e.seq_id: s.tokens[e.seq_id] + e.tokens}),
        counts: counted(getattr(s, counts), e.block, e.ref_count),
    }


def _block_hit(s: Snapshot, e: BlockHit) -> dict[str, Any]:
    return {
        **_name_block(s, e.seq_id, e.block, "device", e.group),
        "tokens": with_(s.tokens, **{e.seq_id: s.tokens[e.seq_id] + (e.tokens if e.computed and not e.group else ())}),
        "ref_counts": counted(s.ref_counts, e.block, e.ref_count),
        "free_blocks": removed(s.free_blocks, e.block),
    }


def _block_cached(s: Snapshot, e: BlockCached) -> dict[str, Any]:
    salt = None if e.logical_block else s.salts.get(e.seq_id)
    return {"cached": {**s.cached, e.block: CachedBlock(e.block_hash, e.parent_hash, e.tokens, salt, e.group or 0)}}


def _block_evicted(s: Snapshot, e: BlockEvicted) -> dict[str, Any]:
    return {"cached": without(s.cached, e.block)}


def _block_collapsed(s: Snapshot, e: BlockCollapsed) -> dict[str, Any]:
    row = entry(s.tables(e.group or 0)[e.seq_id], e.logical_block, e.target)
    return {
        **row_changed(s, e.seq_id, e.group, row),
        "ref_counts": counted(counted(s.ref_counts, e.target, e.ref_count), e.source, 0),
        "free_blocks": inserted(removed(s.free_blocks, e.target), e.source, e.queue_index),
    }


def _written(s: Snapshot, e: Written) -> dict[str, Any]:
    drafts = {w.seq_id: len(s.drafted[w.seq_id]) for w in e.writes if w.seq_id in s.drafted}
    return {
        "drafted": {seq_id: tokens for seq_id, tokens in s.drafted.items() if seq_id not in drafts},
        "unverified": with_(s.unverified, **drafts),
        "tokens": with_(s.tokens, **{w.seq_id: tokens_up_to(s, w.seq_id, w.position) + w.tokens for w in e.writes}),
        "last_scheduled": with_(s.last_scheduled, **{w.seq_id: e.engine_step for w in e.writes}),
    }


def tokens_up_to(s: Snapshot, seq_id: str, position: int) -> tuple[Token, ...]:
    """A sequence's tokens up to `position`. The last of them may be in cached blocks that another sequence filled."""
    tokens, size = s.tokens[seq_id], s.block_size
    for block in s.block_tables[seq_id][len(tokens) // size : position // size]:
        if block is not None and block in s.cached:
            tokens += s.cached[block].tokens
    return tokens


def _block_copied(s: Snapshot, e: BlockCopied) -> dict[str, Any]:
    return {
        "free_blocks": s.free_blocks[1:],
        "pinned": tuple(sorted((*s.pinned, e.target))),
        "ref_counts": counted(s.ref_counts, e.target, 1),
    }


def _entry_rewritten(s: Snapshot, e: EntryRewritten) -> dict[str, Any]:
    row = entry(s.block_tables[e.seq_id], e.logical_block, e.target)
    return {
        "block_tables": with_(s.block_tables, **{e.seq_id: row}),
        "pinned": tuple(block for block in s.pinned if block != e.target),
        "ref_counts": counted(s.ref_counts, e.source, e.ref_count),
    }


def _block_let_go(s: Snapshot, e: BlockReleased | BlockFreed, ref_count: int) -> dict[str, Any]:
    counts = "ref_counts" if e.where == "device" else "host_ref_counts"
    row = s.tables(e.group or 0)[e.seq_id][: e.logical_block]
    if e.group:
        return {**row_changed(s, e.seq_id, e.group, row), counts: counted(getattr(s, counts), e.block, ref_count)}
    return {
        "block_tables": with_(s.block_tables, **{e.seq_id: row}),
        "host_tables": with_(s.host_tables, **{e.seq_id: s.host_tables[e.seq_id][: e.logical_block]}),
        "tokens": with_(s.tokens, **{e.seq_id: s.tokens[e.seq_id][: e.num_tokens]}),
        counts: counted(getattr(s, counts), e.block, ref_count),
    }


def _block_released(s: Snapshot, e: BlockReleased) -> dict[str, Any]:
    return _block_let_go(s, e, e.ref_count)


def _block_freed(s: Snapshot, e: BlockFreed) -> dict[str, Any]:
    queue = "free_blocks" if e.where == "device" else "host_free_blocks"
    return {**_block_let_go(s, e, 0), queue: inserted(getattr(s, queue), e.block, e.queue_index)}


CHANGES: dict[type[Event], Callable[[Snapshot, Any], dict[str, Any]]] = {
    SequenceAdded: _sequence_added,
    SequenceForked: _sequence_forked,
    SequenceFreed: _sequence_freed,
    BlockAllocated: _block_allocated,
    BlockShared: _block_shared,
    BlockHit: _block_hit,
    BlockCached: _block_cached,
    BlockEvicted: _block_evicted,
    BlockCollapsed: _block_collapsed,
    TokenWritten: _written,
    TokensWritten: _written,
    BatchWritten: _written,
    BlockCopied: _block_copied,
    EntryRewritten: _entry_rewritten,
    BlockReleased: _block_released,
    BlockFreed: _block_freed,
}
