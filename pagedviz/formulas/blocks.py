"""The formulas of events of blocks and sequences."""

import itertools

from pagedviz.engine.log.events.base import Event, Write
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
    WriteStopped,
)
from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.formulas import drafts
from pagedviz.formulas.base import block_bytes, head
from pagedviz.scenario.settings import CacheConfig

MOST_RUNS = 8  # lines for the blocks of one write


def lines(cache: CacheConfig, before: Snapshot, event: Event, after: Snapshot) -> list[str]:
    """Empty for any other event."""
    size = cache.block_size
    match event:
        case SequenceAdded():
            each = "" if len(cache.windows) == 1 else f" in each of {len(cache.windows)} groups"
            needed = -(-event.num_tokens // size)
            return [f"blocks{each} = ceil({event.num_tokens} / {size}) = {needed}", f"free = {len(before.free_blocks)}"]
        case SequenceForked():
            skipped = [f"entries of the null block = {event.num_skipped}"] if event.num_skipped else []
            return [f"entries = {event.num_blocks}", *skipped, "blocks taken = 0"]
        case BlockAllocated():
            return [f"free_queue[0] = {before.free_blocks[0]}", f"block_table[{event.logical_block}] = {event.block}"]
        case BlockHit():
            end = (event.logical_block + 1) * size
            agreed = f"at most {event.num_tokens} − 1 tokens"
            if event.group:  # group 0 has its entries already
                agreed = f"{len(after.block_tables[event.seq_id]) * size} tokens that every group agrees on"
            return [
                f"block_table[{event.logical_block}] = {event.block}, hash {event.block_hash}",
                f"ref_count[{event.block}] = {event.ref_count - 1} + 1 = {event.ref_count}",
                f"cached = {end} of {agreed}",
            ]
        case BlockCached():
            parent = event.parent_hash or ("salt" if after.salts.get(event.seq_id) is not None else "nothing")
            first = event.logical_block * size
            return [f"hash({parent}, tokens {first} … {first + size - 1})", f"= {event.block_hash}"]
        case BlockCollapsed():
            return [
                f"block_table[{event.logical_block}]: {event.source} → {event.target}",
                f"ref_count[{event.target}] = {event.ref_count - 1} + 1 = {event.ref_count}",
                f"free_queue = {head(after.free_blocks)}",
            ]
        case BlockEvicted():
            return [f"hash {event.block_hash} → none", f"cached = {len(after.cached)} blocks"]
        case BlockShared():
            return [
                f"block_table[{event.logical_block}] = {event.block}",
                f"ref_count[{event.block}] = {event.ref_count - 1} + 1 = {event.ref_count}",
            ]
        case TokenWritten():
            return [
                *_group_0(cache),
                f"slot = block_table[{event.position} // {size}] × {size} + {event.position} % {size}",
                f"     = block_table[{event.position // size}] × {size} + {event.offset}",
                f"     = {event.block} × {size} + {event.offset} = {event.slot}",
            ]
        case TokensWritten() | BatchWritten():
            several = len(event.writes) > 1
            runs = [f"{w.seq_id} " * several + run for w in event.writes for run in _runs(w, size)]
            return [
                *_group_0(cache),
                *_first([line for write in event.writes for line in drafts.of_write(write, after)], "sequences"),
                "slot = block_table[position // block_size]",
                "       × block_size + position % block_size",
                *_first(runs),
            ]
        case WriteStopped():
            return [f"ref_count[{event.block}] = {event.ref_count} > 1", "so copy first, then write"]
        case BlockCopied():
            first, target, last = event.source * size, event.target * size, event.num_slots - 1
            return [
                f"filled slots {first} … {first + last} → {target} … {target + last}",
                f"bytes of a block = {block_bytes(cache)}",
            ]
        case EntryRewritten():
            return [
                f"block_table[{event.logical_block}]: {event.source} → {event.target}",
                f"ref_count[{event.source}] = {event.ref_count + 1} − 1 = {event.ref_count}",
            ]
        case BlockReleased():
            return [f"ref_count[{event.block}] = {event.ref_count + 1} − 1 = {event.ref_count}"]
        case BlockFreed():
            queue = after.free_blocks if event.where == "device" else after.host_free_blocks
            return [f"ref_count[{event.block}] = 1 − 1 = 0", f"free_queue = {head(queue)}"]
        case SequenceFreed():
            return [f"free = {len(after.free_blocks)} of {cache.num_blocks - (after.null_block is not None)} blocks"]
    return []


def _group_0(cache: CacheConfig) -> list[str]:
    return [] if len(cache.windows) == 1 else ["group 0; each group has slots by a table of its own"]


def _runs(write: Write, size: int) -> list[str]:
    """The positions and slots of a write, one line for each block."""
    end = write.position + len(write.slots)
    starts = range((write.position // size + 1) * size, end, size)
    lines = []
    for first, stop in itertools.pairwise([write.position, *starts, end]):
        slots = write.slots[first - write.position : stop - write.position]
        lines.append(f"{_span(first, stop - 1)} → block {slots[0] // size}, slot {_span(slots[0], slots[-1])}")
    return lines


def _first(lines: list[str], of: str = "blocks") -> list[str]:
    """All lines, or the first few of many."""
    if len(lines) <= MOST_RUNS:
        return lines
    return [*lines[: MOST_RUNS - 1], f"and {len(lines) - MOST_RUNS + 1} more {of}"]


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} … {last}"
