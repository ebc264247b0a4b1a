"""The state of a cache, frozen for the log."""

from pagedviz.engine.blocks.state import CacheState
from pagedviz.engine.log.host_snapshot import TierSnapshot
from pagedviz.engine.log.snapshot import CachedBlock, Snapshot


def freeze(state: CacheState, tier: TierSnapshot | None) -> Snapshot:
    """The state now, with that of the host tier, if there is one."""
    sequences, pool, host_pool = state.sequences.values(), state.pool, state.host_pool
    return Snapshot(
        block_size=state.block_size,
        num_blocks=pool.num_blocks,
        host_blocks=host_pool.num_blocks,
        null_block=state.null_block,
        block_tables={seq.seq_id: tuple(seq.block_table) for seq in sequences},
        host_tables={seq.seq_id: tuple(seq.host_table) for seq in sequences},
        tokens={seq.seq_id: tuple(seq.tokens) for seq in sequences},
        last_scheduled={seq.seq_id: seq.last_scheduled for seq in sequences},
        ref_counts={block: count for block, count in enumerate(pool.ref_count) if count},
        host_ref_counts={block: count for block, count in enumerate(host_pool.ref_count) if count},
        pinned=tuple(sorted(state.pinned)),
        free_blocks=tuple(pool.free_blocks),
        host_free_blocks=tuple(host_pool.free_blocks),
        salts={seq.seq_id: seq.salt for seq in sequences},
        cached={
            block: CachedBlock(link.short, link.parent_short, link.tokens, link.salt, state.cache.groups[block])
            for block, link in state.cache.links.items()
        },
        windows=state.windows,
        group_tables=tuple(
            {seq.seq_id: tuple(seq.block_tables[group]) for seq in sequences} for group in range(1, len(state.windows))
        ),
        drafted={seq.seq_id: seq.drafts for seq in sequences if seq.drafts},
        unverified={seq.seq_id: seq.unverified for seq in sequences if seq.unverified},
        tier=tier,
    )
