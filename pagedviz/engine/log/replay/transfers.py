"""How the events of transfers change the state: moved blocks, the host tier, and the device blocks of its transfers."""

from collections.abc import Callable, Mapping
from typing import Any

from pagedviz.engine.log.events.base import Event
from pagedviz.engine.log.events.transfers import (
    BlockLoaded,
    BlockReloaded,
    BlockSpilled,
    TierEvent,
    TierEvicted,
    TierLoadBegun,
    TierLoadCancelled,
    TierLoadFailed,
    TierLoadFinished,
    TierStoreBegun,
    TierStoreCancelled,
    TierStoreFailed,
    TierStoreFinished,
    TierTouched,
    TierTransferEnded,
)
from pagedviz.engine.log.replay import host_tier
from pagedviz.engine.log.replay.base import counted, entry, inserted, returned, with_
from pagedviz.engine.log.snapshot import CachedBlock, Snapshot, TableRow


def _moved(
    tables: Mapping[str, TableRow], seq_ids: tuple[str, ...], place: Mapping[str, int], block: int | None
) -> Any:
    return with_(tables, **{seq_id: entry(tables[seq_id], place[seq_id], block) for seq_id in seq_ids})


def _block_spilled(s: Snapshot, e: BlockSpilled) -> dict[str, Any]:
    place = {seq_id: s.block_tables[seq_id].index(e.block) for seq_id in e.seq_ids}
    return {
        "block_tables": _moved(s.block_tables, e.seq_ids, place, None),
        "host_tables": _moved(s.host_tables, e.seq_ids, place, e.host_block),
        "host_ref_counts": counted(s.host_ref_counts, e.host_block, s.ref_counts[e.block]),
        "ref_counts": counted(s.ref_counts, e.block, 0),
        "host_free_blocks": s.host_free_blocks[1:],
        "free_blocks": inserted(s.free_blocks, e.block, e.queue_index),
    }


def _block_reloaded(s: Snapshot, e: BlockReloaded) -> dict[str, Any]:
    place = {seq_id: s.host_tables[seq_id].index(e.host_block) for seq_id in e.seq_ids}
    return {
        "block_tables": _moved(s.block_tables, e.seq_ids, place, e.block),
        "host_tables": _moved(s.host_tables, e.seq_ids, place, None),
        "ref_counts": counted(s.ref_counts, e.block, s.host_ref_counts[e.host_block]),
        "host_ref_counts": counted(s.host_ref_counts, e.host_block, 0),
        "free_blocks": s.free_blocks[1:],
        "host_free_blocks": inserted(s.host_free_blocks, e.host_block, e.queue_index),
    }


def _tier_changed(s: Snapshot, e: TierEvent) -> dict[str, Any]:
    assert s.tier is not None
    return {"tier": host_tier.apply(s.tier, e)}


def _pinned(s: Snapshot, e: TierStoreBegun | TierLoadBegun) -> dict[str, Any]:
    """A transfer holds its device blocks: each has one more pin, and is not in the free queue."""
    counts = dict(s.ref_counts)
    for block in e.device_blocks:
        counts[block] = counts.get(block, 0) + 1
    return {
        **_tier_changed(s, e),
        "ref_counts": dict(sorted(counts.items())),
        "free_blocks": tuple(block for block in s.free_blocks if block not in e.device_blocks),
        "pinned": tuple(sorted((*s.pinned, *e.device_blocks))),
    }


def _unpinned(s: Snapshot, e: TierTransferEnded) -> dict[str, Any]:
    """A transfer no longer holds its device blocks. A loaded block is held until it has its hash."""
    if isinstance(e, TierLoadFinished):
        return _tier_changed(s, e)
    counts, queue = s.ref_counts, s.free_blocks
    # The last block first, so that the tail of a chain is evicted first.
    for block, queue_index in reversed(list(zip(e.device_blocks, e.queue_indices, strict=True))):
        counts = counted(counts, block, counts[block] - 1)
        queue = returned(queue, block, queue_index)
    pinned = tuple(block for block in s.pinned if block not in e.device_blocks)
    return {**_tier_changed(s, e), "ref_counts": counts, "free_blocks": queue, "pinned": pinned}


def _block_loaded(s: Snapshot, e: BlockLoaded) -> dict[str, Any]:
    return {
        "cached": {**s.cached, e.block: CachedBlock(e.block_hash, e.parent_hash, e.tokens, e.salt)},
        "ref_counts": counted(s.ref_counts, e.block, 0),
        "free_blocks": inserted(s.free_blocks, e.block, e.queue_index),
        "pinned": tuple(block for block in s.pinned if block != e.block),
    }


CHANGES: dict[type[Event], Callable[[Snapshot, Any], dict[str, Any]]] = {
    BlockSpilled: _block_spilled,
    BlockReloaded: _block_reloaded,
    TierEvicted: _tier_changed,
    TierTouched: _tier_changed,
    TierStoreBegun: _pinned,
    TierStoreFinished: _unpinned,
    TierStoreFailed: _unpinned,
    TierStoreCancelled: _unpinned,
    TierLoadBegun: _pinned,
    TierLoadFinished: _unpinned,
    TierLoadFailed: _unpinned,
    TierLoadCancelled: _unpinned,
    BlockLoaded: _block_loaded,
}
