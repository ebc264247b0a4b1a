"""What the host tier's events mean for the state: for the tier itself, and for the device blocks of its transfers."""

from collections.abc import Callable
from typing import Any

from pagedviz.engine import tier_events as tier
from pagedviz.engine import tier_replay
from pagedviz.engine.events import Event
from pagedviz.engine.replay_tools import counted, inserted, returned
from pagedviz.engine.snapshot import CachedBlock, Snapshot


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
        counts = counted(counts, block, counts[block] - 1)
        queue = returned(queue, block, queue_index)
    pinned = tuple(block for block in s.pinned if block not in e.device_blocks)
    return {**_tier_changed(s, e), "ref_counts": counts, "free_blocks": queue, "pinned": pinned}


def _block_loaded(s: Snapshot, e: tier.BlockLoaded) -> dict[str, Any]:
    return {
        "cached": {**s.cached, e.block: CachedBlock(e.block_hash, e.parent_hash, e.tokens, e.salt)},
        "ref_counts": counted(s.ref_counts, e.block, 0),
        "free_blocks": inserted(s.free_blocks, e.block, e.queue_index),
        "pinned": tuple(block for block in s.pinned if block != e.block),
    }


CHANGES: dict[type[Event], Callable[[Snapshot, Any], dict[str, Any]]] = {
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
