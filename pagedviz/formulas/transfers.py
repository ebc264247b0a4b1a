"""The formulas of events of transfers: spilled and reloaded blocks, and the host tier."""

from pagedviz.engine.log.events.base import Event
from pagedviz.engine.log.events.transfers import (
    BlockLoaded,
    BlockReloaded,
    BlockSpilled,
    TierEvicted,
    TierLoadBegun,
    TierLoadFinished,
    TierStoreBegun,
    TierTouched,
    TierTransferEnded,
    TierTransferEvent,
    short,
)
from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.formulas.base import block_bytes
from pagedviz.scenario.settings import CacheConfig

MOST_PAIRS = 6  # lines for the blocks of one transfer


def lines(cache: CacheConfig, before: Snapshot, event: Event, after: Snapshot) -> list[str]:
    """Empty for any other event."""
    match event:
        case BlockSpilled():
            return [f"device {event.block} → host {event.host_block}", f"bytes = {block_bytes(cache)}"]
        case BlockReloaded():
            return [f"host {event.host_block} → device {event.block}", f"bytes = {block_bytes(cache)}"]
        case TierEvicted():
            return [f"hash {short(event.block_hash)} → none", *_room(after)]
        case TierTouched():
            newest = after.tier.recency[-len(event.block_hashes) :] if after.tier else ()
            return [f"recency ends with {', '.join(map(short, newest[-MOST_PAIRS:]))}"]
        case TierStoreBegun():
            return [*_pairs(event, "→"), _bytes(cache, event), *_room(after)]
        case TierLoadBegun():
            left, taken = len(after.free_blocks), len(event.device_blocks)
            return [
                *_pairs(event, "←"),
                _bytes(cache, event),
                f"free device blocks = {left + taken} − {taken} = {left}",
            ]
        case TierLoadFinished():
            return [*_pairs(event, "="), _bytes(cache, event), *_in_transfer(after)]
        case TierTransferEnded():
            free = [block for block in event.device_blocks if block not in after.ref_counts]
            return [
                f"device blocks that are free now = {len(free)} of {len(event.device_blocks)}",
                *_room(after),
                *_in_transfer(after),
            ]
        case BlockLoaded():
            return [
                f"hash of block {event.block} = {event.block_hash}",
                f"ref_count[{event.block}] = 1 − 1 = 0",
                f"free_queue[{event.queue_index}] = {after.free_blocks[event.queue_index]}",
                f"cached = {len(after.cached)} blocks",
            ]
    return []


def _pairs(event: TierTransferEvent, arrow: str) -> list[str]:
    """The pairs of device block and chunk, one line each, or the first few of many."""
    pairs = [
        f"block {block} {arrow} chunk {chunk}, hash {short(block_hash)}"
        for block_hash, block, chunk in zip(event.block_hashes, event.device_blocks, event.chunks, strict=True)
    ]
    if len(pairs) <= MOST_PAIRS:
        return pairs
    return [*pairs[: MOST_PAIRS - 1], f"and {len(pairs) - MOST_PAIRS + 1} more"]


def _bytes(cache: CacheConfig, event: TierTransferEvent) -> str:
    count = len(event.chunks)
    return f"bytes = {count} × {cache.bytes_per_block} = {count * cache.bytes_per_block:,}"


def _room(after: Snapshot) -> list[str]:
    return [f"free chunks = {len(after.tier.free_chunks)} of {after.tier.num_chunks}"] if after.tier else []


def _in_transfer(after: Snapshot) -> list[str]:
    return [f"unfinished transfers = {len(after.tier.transfers)}"] if after.tier else []
