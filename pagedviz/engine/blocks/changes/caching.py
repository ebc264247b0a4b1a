"""A full block gets a hash, by which prompts find it; it is hit, collapses into its like, and is evicted."""

from collections.abc import Collection

from pagedviz.engine.blocks import hashing
from pagedviz.engine.blocks.sequence import Sequence
from pagedviz.engine.blocks.state import CacheState, Occasion
from pagedviz.engine.log.events.blocks import BlockCached, BlockCollapsed, BlockEvicted, BlockHit
from pagedviz.engine.policies.free_orders import Freed


def hit(state: CacheState, seq: Sequence, block: int, num_tokens: int, group: int = 0) -> None:
    """Let a prompt name a cached block instead of computing its tokens."""
    link = state.cache.links[block]
    ref_count = state.pool.take_hit(block)
    seq.name_block(block, "device", group)
    # What another sequence fills in this step's launch is there after it, and so is what lies behind.
    computed = block not in state.pending and not seq.awaited
    if group == 0:
        (seq.tokens if computed else seq.awaited).extend(link.tokens)
        seq.links.append(link)
        seq.num_offered = len(seq.links)
    state.uses[block] = state.uses.get(block, 0) + 1
    state.report(
        BlockHit(
            seq_id=seq.seq_id,
            logical_block=len(seq.block_tables[group]) - 1,
            block=block,
            block_hash=link.short,
            ref_count=ref_count,
            tokens=link.tokens,
            num_tokens=num_tokens,
            computed=computed,
            group=state.label(group),
        )
    )
    _offer(state, "hit", [block])


def publish(state: CacheState, seq: Sequence) -> None:
    """Give a hash to the blocks that are full, with what the next launch writes; drafts do not count."""
    if not state.prefix_caching:
        return
    size = state.block_size
    drafts = seq.unverified + (len(seq.drafts) if seq.scheduled else 0)
    end = (seq.seq_len + len(seq.awaited) + len(seq.scheduled) - drafts) // size
    while len(seq.links) < end:
        j = len(seq.links)
        tokens = seq.tokens[j * size : (j + 1) * size]
        if len(tokens) < size:
            ahead = [*seq.awaited, *seq.scheduled]
            first = max(0, j * size - seq.seq_len)
            tokens += ahead[first : first + size - len(tokens)]
            state.pending.update(seq.on_device(j, group) for group in range(len(state.windows)))
        parent = seq.links[-1] if seq.links else None
        seq.links.append(hashing.link(parent, tokens, seq.salt))
        for group, skipped in enumerate(seq.num_skipped):
            if j >= skipped:
                cache_block(state, seq, j, group)


def cache_block(state: CacheState, seq: Sequence, j: int, group: int = 0) -> None:
    """Let a full block be found, or what the profile does when a block that is found holds the same."""
    block, link = seq.on_device(j, group), seq.links[j]
    cached = state.cache.find(link, group)
    entry: int = block
    findable: tuple[int, ...] = (block,)
    if cached is not None:
        # One link for equal content: what follows it is then compared in one step, not back to the first block.
        link = seq.links[j] = state.cache.links[cached]
        entry, findable = state.profile.duplicates(cached, block)
    if entry != block:
        _collapse(state, seq, j, entry, group)
        return
    if cached is not None and cached not in findable:
        evict(state, cached, f"block {block} holds the same, and the map names the last writer")
    if block in findable:
        state.cache.put(block, link, group)
        state.uses[block] = 1
        state.report(
            BlockCached(
                seq_id=seq.seq_id,
                logical_block=j,
                block=block,
                block_hash=link.short,
                parent_hash=link.parent_short,
                tokens=link.tokens,
                group=state.label(group),
            )
        )


def _collapse(state: CacheState, seq: Sequence, j: int, target: int, group: int) -> None:
    """Name the block that holds the same instead of the own one, which goes back to the free queue."""
    source = seq.on_device(j, group)
    ref_count = state.pool.take_hit(target)
    state.pool.release(source)
    seq.block_tables[group][j] = target
    queue_index = state.pool.put_back(Freed(source), state.profile.free_order)
    state.report(
        BlockCollapsed(
            seq_id=seq.seq_id,
            logical_block=j,
            source=source,
            target=target,
            ref_count=ref_count,
            queue_index=queue_index,
            group=state.label(group),
        )
    )


def evict(state: CacheState, block: int, reason: str) -> None:
    """Let a cached block be hit no more."""
    link = state.cache.drop(block)
    state.last_used.pop(block, None)
    state.uses.pop(block, None)
    ref_count = state.pool.ref_count[block]
    state.report(BlockEvicted(block=block, block_hash=link.short, ref_count=ref_count, reason=reason))


def evict_for_others(state: CacheState, block: int, kept: Collection[str] = ()) -> None:
    """A block of the free queue goes out for other tokens: what it held can then come from the host only."""
    if block in state.cache:
        _offer(state, "evicted", [block], kept)
        evict(state, block, "it is the next out of the free queue, and is wanted for other tokens")


def forget_pending(state: CacheState, block: int) -> None:
    """A block that no launch will fill any more can no longer be hit."""
    if block in state.pending:
        state.pending.remove(block)
        evict(state, block, "it was never filled")


def offer_computed(state: CacheState, seq: Sequence) -> None:
    """Full blocks that have just been computed, or verified, are offered once."""
    end = min(len(seq.links), seq.seq_len // state.block_size)
    row = seq.block_table
    computed = [block for block in row[seq.num_offered : end] if block is not None and block in state.cache]
    seq.num_offered = max(seq.num_offered, end)
    if computed:
        _offer(state, "computed", computed)


def _offer(state: CacheState, occasion: Occasion, blocks: Collection[int], kept: Collection[str] = ()) -> None:
    if state.listener:
        state.listener(occasion, blocks, kept)
