"""How many blocks a prompt, or more tokens of a sequence, will take. Counts only; changes nothing."""

from collections.abc import Sequence as Tokens
from typing import NamedTuple

from pagedviz.engine.blocks import hashing
from pagedviz.engine.blocks.changes import BlockChanges
from pagedviz.engine.blocks.hashing import Link
from pagedviz.engine.blocks.sequence import Sequence
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
    changes: BlockChanges, tokens: Tokens[Token], salt: str | None, seq_len: int, chunk: int | None = None
) -> BlockDemand:
    """What a prompt takes of which `seq_len` tokens get slots, counted from its first. Changes nothing.

    With `chunk`, it is computed in launches of so many tokens at most, and what falls out of a window on the way
    need not be there at once.
    """
    rows = hits(changes, tokens, salt)
    num_hits = len(rows[0])
    num_blocks = changes.blocks_for(max(seq_len, num_hits * changes.block_size))
    from_queue = alone = 0
    for row, window in zip(rows, changes.windows, strict=True):
        named = [block for block in row if block is not None]
        size, release = changes.block_size, changes.profile.window_release
        most = num_blocks if chunk is None else most_blocks(seq_len, chunk, window, size, release)
        # A hit that lies in the free queue is one free block less for the others.
        revived = sum(changes.pool.ref_count[block] == 0 for block in named)
        from_queue += min(num_blocks - num_hits, max(0, most - len(named))) + revived
        alone += min(num_blocks - num_hits + len(named), most)
    from_queue += changes.null_block is None and any(None in row for row in rows)
    return BlockDemand(rows, num_hits * changes.block_size, num_blocks, from_queue, alone)


def of_more(changes: BlockChanges, seq: Sequence, num_tokens: int) -> tuple[int, int]:
    """What `num_tokens` more of a resident sequence take: blocks out of the free queue, and how many the whole sequence
    would need in an empty pool."""
    seq_len, groups = seq.seq_len, len(changes.windows)
    end = changes.blocks_for(seq_len + num_tokens)
    needed = groups * max(0, end - len(seq.block_table))  # what rejected drafts have left is spare
    alone = groups * end
    if changes.has_window:
        needed += changes.null_block is None
        for group, out in enumerate(changes.window_ends(seq)):
            leaving = [changes.on_device(seq, j, group) for j in range(seq.num_skipped[group], out)]
            needed -= sum(changes.pool.ref_count[block] == 1 for block in leaving)
            alone -= max(out, seq.num_skipped[group])
        needed = max(needed, changes.null_block is None)  # taken before anything is let go
    j, filled = divmod(seq_len, changes.block_size)
    if filled and changes.pool.ref_count[changes.on_device(seq, j)] > 1:
        needed += 1  # the first write copies the shared tail
    return needed, alone


def hits(changes: BlockChanges, tokens: Tokens[Token], salt: str | None) -> list[list[int | None]]:
    """By group, the cached blocks that a prompt names, as many as all groups agree on; None below the window."""
    if not changes.prefix_caching:
        return [[] for _ in changes.windows]
    if changes.windows == (None,):
        return [list(changes.cache.longest_prefix(tokens, salt))]
    size = changes.block_size
    chain = links(tokens, salt, size, (len(tokens) - 1) // size)
    found = [[changes.cache.find(link, group) for link in chain] for group in range(len(changes.windows))]
    agreed = agreed_prefix(found, changes.windows, size)
    ends = [below_window(agreed * size, window, size) for window in changes.windows]
    return [[None if j < end else row[j] for j in range(agreed)] for row, end in zip(found, ends, strict=True)]


def links(tokens: Tokens[Token], salt: str | None, block_size: int, num_blocks: int) -> list[Link]:
    """What the first whole blocks of a prompt hold."""
    chain = list[Link]()
    for start in range(0, num_blocks * block_size, block_size):
        chain.append(hashing.link(chain[-1] if chain else None, tokens[start : start + block_size], salt))
    return chain
