"""How many blocks a prompt, or more tokens of a sequence, will take. Counts only; changes nothing."""

from collections.abc import Sequence as Tokens
from typing import NamedTuple

from pagedviz.engine.blocks import hashing
from pagedviz.engine.blocks.changes import windows
from pagedviz.engine.blocks.hashing import Link
from pagedviz.engine.blocks.sequence import Sequence
from pagedviz.engine.blocks.state import CacheState
from pagedviz.engine.log.events.base import Token
from pagedviz.engine.policies.windows import agreed_prefix, below_window, most_blocks


class BlockDemand(NamedTuple):
    """What a prompt takes if it is admitted now: `hits[group]` are the cached blocks that it names there, None where
    they are out of the window, `num_hit_tokens` what they hold; each table gets `num_blocks` entries, for which
    `from_queue` blocks leave the free queue, hits among them. `alone` is how many it would need in an empty pool."""

    hits: list[list[int | None]]
    num_hit_tokens: int
    num_blocks: int
    from_queue: int
    alone: int


def of_prompt(
    state: CacheState, tokens: Tokens[Token], salt: str | None, seq_len: int, chunk: int | None = None
) -> BlockDemand:
    """What a prompt takes of which `seq_len` tokens get slots, counted from its first. Changes nothing.

    With `chunk`, it is computed in launches of so many tokens at most, and what falls out of a window on the way
    need not be there at once.
    """
    rows = hits(state, tokens, salt)
    num_hits = len(rows[0])
    num_blocks = state.blocks_for(max(seq_len, num_hits * state.block_size))
    from_queue = alone = 0
    for row, window in zip(rows, state.windows, strict=True):
        named = [block for block in row if block is not None]
        size, release = state.block_size, state.profile.window_release
        most = num_blocks if chunk is None else most_blocks(seq_len, chunk, window, size, release)
        # A hit that lies in the free queue is one free block less for the others.
        revived = sum(state.pool.ref_count[block] == 0 for block in named)
        from_queue += min(num_blocks - num_hits, max(0, most - len(named))) + revived
        alone += min(num_blocks - num_hits + len(named), most)
    from_queue += state.null_block is None and any(None in row for row in rows)
    return BlockDemand(rows, num_hits * state.block_size, num_blocks, from_queue, alone)


def of_more(state: CacheState, seq: Sequence, num_tokens: int) -> tuple[int, int]:
    """What `num_tokens` more of a resident sequence take: blocks out of the free queue, and how many the whole sequence
    would need in an empty pool."""
    seq_len, groups = seq.seq_len, len(state.windows)
    end = state.blocks_for(seq_len + num_tokens)
    needed = groups * max(0, end - len(seq.block_table))  # what rejected drafts have left is spare
    alone = groups * end
    if state.has_window:
        needed += state.null_block is None
        for group, out in enumerate(windows.ends(state, seq)):
            leaving = [seq.on_device(j, group) for j in range(seq.num_skipped[group], out)]
            needed -= sum(state.pool.ref_count[block] == 1 for block in leaving)
            alone -= max(out, seq.num_skipped[group])
        needed = max(needed, state.null_block is None)  # taken before anything is let go
    j, filled = divmod(seq_len, state.block_size)
    if filled and state.pool.ref_count[seq.on_device(j)] > 1:
        needed += 1  # the first write copies the shared tail
    return needed, alone


def hits(state: CacheState, tokens: Tokens[Token], salt: str | None) -> list[list[int | None]]:
    """By group, the cached blocks that a prompt names, as many as all groups agree on; None below the window."""
    if not state.prefix_caching:
        return [[] for _ in state.windows]
    if state.windows == (None,):
        return [list(state.cache.longest_prefix(tokens, salt))]
    size = state.block_size
    chain = links(tokens, salt, size, (len(tokens) - 1) // size)
    found = [[state.cache.find(link, group) for link in chain] for group in range(len(state.windows))]
    agreed = agreed_prefix(found, state.windows, size)
    ends = [below_window(agreed * size, window, size) for window in state.windows]
    return [[None if j < end else row[j] for j in range(agreed)] for row, end in zip(found, ends, strict=True)]


def links(tokens: Tokens[Token], salt: str | None, block_size: int, num_blocks: int) -> list[Link]:
    """What the first whole blocks of a prompt hold."""
    chain = list[Link]()
    for start in range(0, num_blocks * block_size, block_size):
        chain.append(hashing.link(chain[-1] if chain else None, tokens[start : start + block_size], salt))
    return chain
