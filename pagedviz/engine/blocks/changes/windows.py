"""Blocks leave a window, or a hit skips those before it; their entries name the null block."""

from collections.abc import Collection
from collections.abc import Sequence as Tokens

from pagedviz.engine.blocks.changes import allocation, caching
from pagedviz.engine.blocks.hashing import Link
from pagedviz.engine.blocks.sequence import Sequence
from pagedviz.engine.blocks.state import CacheState
from pagedviz.engine.log.events.windows import BlockOutOfWindow, NullBlockTaken, PrefixSkipped
from pagedviz.engine.policies.windows import first_seen


def take_null_block(state: CacheState, held: Collection[int] = ()) -> int:
    """The null block's id; the first time in a profile that has none, a free block becomes it for good, but none of
    those `held`."""
    if state.null_block is None:
        block = next(block for block in state.pool.free_blocks if block not in held)
        caching.evict_for_others(state, block)
        state.pool.free_blocks.remove(block)
        state.null_block = block
        state.report(NullBlockTaken(block=block))
    return state.null_block


def let_go(state: CacheState, seq: Sequence) -> None:
    """Let go of the blocks that no token to come looks at, tail first; their entries name the null block."""
    for group, end in enumerate(ends(state, seq)):
        row, run = seq.block_tables[group], list[int]()
        for j in range(end - 1, seq.num_skipped[group] - 1, -1):
            block = seq.on_device(j, group)
            ref_count, cached, queue_index = allocation.let_go(state, seq, j, block, state.pool, run)
            row[j] = null_block = take_null_block(state)
            state.report(
                BlockOutOfWindow(
                    seq_id=seq.seq_id,
                    logical_block=j,
                    block=block,
                    null_block=null_block,
                    ref_count=ref_count,
                    queue_index=queue_index,
                    cached=cached,
                    first_seen=first_seen(seq.seq_len, state.windows[group]),
                    group=state.label(group),
                )
            )
        seq.num_skipped[group] = max(end, seq.num_skipped[group])


def ends(state: CacheState, seq: Sequence) -> list[int]:
    """By group, how many leading entries need not be there for the tokens to come."""
    return [
        0 if window is None else state.profile.window_release(seq.seq_len, window, state.block_size)
        for window in state.windows
    ]


def skip(state: CacheState, seq: Sequence, links: Tokens[Link], group: int) -> None:
    """Name the null block for the blocks before the window of a hit: no token to come looks at them."""
    tokens = tuple(token for link in links for token in link.tokens)
    null_block = take_null_block(state)
    seq.skip(null_block, len(links), group)
    if group == 0:
        seq.tokens.extend(tokens)
        seq.links.extend(links)
    state.report(
        PrefixSkipped(
            seq_id=seq.seq_id,
            tokens=tokens,
            num_blocks=len(links),
            null_block=null_block,
            group=state.label(group),
        )
    )
