"""Blocks in use move to the host and back, and with them every table entry that names them."""

from pagedviz.engine.blocks.changes import allocation, caching
from pagedviz.engine.blocks.sequence import Sequence
from pagedviz.engine.blocks.state import CacheState
from pagedviz.engine.log.events.transfers import BlockReloaded, BlockSpilled
from pagedviz.engine.policies.free_orders import Freed


def spill(state: CacheState, seq: Sequence, blocks: list[int], reason: str) -> None:
    """Move these blocks of a sequence to the host, each to a free host block."""
    for block in blocks:
        if block in state.cache:
            caching.evict(state, block, "it leaves the device")
        host_block = state.host_pool.take()
        state.host_pool.ref_count[host_block] = state.pool.ref_count[block]
        state.pool.ref_count[block] = 0
        sharers = _move_entries(state, block, "device", host_block)
        queue_index = state.pool.put_back(Freed(block), state.profile.free_order)
        state.report(
            BlockSpilled(
                seq_id=seq.seq_id,
                seq_ids=sharers,
                block=block,
                host_block=host_block,
                queue_index=queue_index,
                reason=reason,
            )
        )


def reload(state: CacheState, seq: Sequence, host_block: int) -> None:
    """Bring one block back to the device, to the next free block."""
    block = allocation.take(state)
    state.pool.ref_count[block] = state.host_pool.ref_count[host_block]
    state.host_pool.ref_count[host_block] = 0
    sharers = _move_entries(state, host_block, "host", block)
    queue_index = state.host_pool.put_back(Freed(host_block), state.profile.free_order)
    state.report(
        BlockReloaded(seq_id=seq.seq_id, seq_ids=sharers, block=block, host_block=host_block, queue_index=queue_index)
    )


def _move_entries(state: CacheState, block: int, where: str, target: int) -> tuple[str, ...]:
    """Point every entry that names `block` at `target` in the other memory; return the sequences that name it."""
    sharers = []
    for seq in state.sequences.values():
        source_row, target_row = seq.block_table, seq.host_table
        if where == "host":
            source_row, target_row = target_row, source_row
        if block in source_row:
            j = source_row.index(block)
            source_row[j], target_row[j] = None, target
            seq.num_on_host += 1 if where == "device" else -1
            sharers.append(seq.seq_id)
    return tuple(sharers)
