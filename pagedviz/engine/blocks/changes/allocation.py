"""A sequence takes a block, shares it, copies it before a write, and lets go of it."""

from pagedviz.engine.blocks.changes import caching
from pagedviz.engine.blocks.pool import BlockPool
from pagedviz.engine.blocks.sequence import Sequence
from pagedviz.engine.blocks.state import CacheState
from pagedviz.engine.log.events.blocks import (
    BlockAllocated,
    BlockCopied,
    BlockFreed,
    BlockReleased,
    BlockShared,
    EntryRewritten,
    WriteStopped,
)
from pagedviz.engine.policies.free_orders import Freed


def allocate(state: CacheState, seq: Sequence, reason: str, group: int = 0) -> None:
    """Give a sequence one more logical block, in the next free block."""
    block = take(state)
    seq.name_block(block, "device", group)
    j = len(seq.block_tables[group]) - 1
    label = state.label(group)
    state.report(BlockAllocated(seq_id=seq.seq_id, logical_block=j, block=block, reason=reason, group=label))


def allocate_up_to(state: CacheState, seq: Sequence, num_blocks: int, reason: str) -> None:
    """Give a sequence blocks until each of its tables has so many entries."""
    for group, row in enumerate(seq.block_tables):
        while len(row) < num_blocks:
            allocate(state, seq, reason, group)


def take(state: CacheState) -> int:
    """The next block out of the free queue. If it is cached, it can no longer be hit."""
    block = state.pool.free_blocks.first
    caching.evict_for_others(state, block)
    return state.pool.take()


def share(state: CacheState, child: Sequence, parent: Sequence, j: int) -> None:
    """Let a forked sequence name its parent's logical block j too."""
    block, where, pool = _entry(state, parent, j)
    ref_count = pool.share(block)
    tokens = parent.tokens[j * state.block_size : (j + 1) * state.block_size]
    child.name_block(block, where)
    child.tokens += tokens
    child.links += parent.links[j : j + 1]
    state.report(
        BlockShared(
            seq_id=child.seq_id,
            parent=parent.seq_id,
            logical_block=j,
            block=block,
            where=where,
            ref_count=ref_count,
            tokens=tuple(tokens),
        )
    )


def make_writable(state: CacheState, seq: Sequence) -> None:
    """Copy the last, partly filled block of a sequence if others name it too: what follows is written into the copy."""
    j = seq.seq_len // state.block_size
    source = seq.on_device(j)
    if state.pool.ref_count[source] == 1:
        return  # the last sharer writes in place
    ref_count = state.pool.ref_count[source]
    state.report(WriteStopped(seq_id=seq.seq_id, logical_block=j, block=source, ref_count=ref_count))
    target = take(state)
    state.pinned.add(target)
    filled = seq.seq_len % state.block_size
    state.report(BlockCopied(seq_id=seq.seq_id, logical_block=j, source=source, target=target, num_slots=filled))
    seq.block_table[j] = target
    state.pinned.remove(target)
    ref_count = state.pool.release(source)
    state.report(EntryRewritten(seq_id=seq.seq_id, logical_block=j, source=source, target=target, ref_count=ref_count))


def release_behind(state: CacheState, seq: Sequence, keep: int, group: int = 0) -> None:
    """Let go of a sequence's logical blocks behind the first `keep`, the last one first."""
    runs: dict[str, list[int]] = {"device": [], "host": []}
    while len(seq.block_tables[group]) > keep:
        _release_last(state, seq, runs, group)


def _release_last(state: CacheState, seq: Sequence, runs: dict[str, list[int]], group: int) -> None:
    """Let go of a sequence's last logical block; `runs` are the blocks put back with it, by memory."""
    j = len(seq.block_tables[group]) - 1
    block, where, pool = _entry(state, seq, j, group)
    ref_count, cached, queue_index = let_go(state, seq, j, block, pool, runs[where])
    seq.drop_last_block(state.block_size, group)
    if queue_index is None:
        state.report(
            BlockReleased(
                seq_id=seq.seq_id,
                logical_block=j,
                block=block,
                where=where,
                ref_count=ref_count,
                num_tokens=seq.seq_len,
                group=state.label(group),
            )
        )
    else:
        state.report(
            BlockFreed(
                seq_id=seq.seq_id,
                logical_block=j,
                block=block,
                where=where,
                queue_index=queue_index,
                num_tokens=seq.seq_len,
                cached=cached,
                group=state.label(group),
            )
        )


def let_go(
    state: CacheState, seq: Sequence, j: int, block: int, pool: BlockPool, run: list[int]
) -> tuple[int, bool, int | None]:
    """Count one name less of a block, and put it back when that was the last; `run` are those put back with it.

    Returns its ref_count, whether it can still be hit, and its place in the free queue, None if others name it.
    """
    on_device = pool is state.pool
    if on_device:
        caching.forget_pending(state, block)
    cached = on_device and block in state.cache
    last_used = max(seq.last_scheduled, state.last_used.pop(block, 0)) if cached else 0
    ref_count = pool.release(block)
    if ref_count:
        if cached:
            state.last_used[block] = last_used
        return ref_count, cached, None
    return 0, cached, pool.put_back(Freed(block, cached, (last_used, -j), run), state.profile.free_order)


def _entry(state: CacheState, seq: Sequence, j: int, group: int = 0) -> tuple[int, str, BlockPool]:
    """Logical block j's physical block, the memory it is in, and that memory's pool."""
    block = seq.block_tables[group][j]
    if block is not None:
        return block, "device", state.pool
    host_block = seq.host_table[j]
    assert host_block is not None
    return host_block, "host", state.host_pool
