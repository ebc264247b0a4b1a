"""Which blocks a group of layers needs: all of them with full attention, only the last few with a sliding window.

A token at position p sees the `window` positions up to p. So from p on, no token reads below p - window + 1.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

Window = int | None  # in tokens; None: every token is seen

WindowRelease = Callable[[int, int, int], int]  # (tokens in the cache, window, block_size) -> leading blocks released


def first_seen(position: int, window: Window) -> int:
    """The first position that the token at `position` sees."""
    return 0 if window is None else max(0, position - window + 1)


def below_window(num_tokens: int, window: Window, block_size: int) -> int:
    """All blocks without a token that is still seen. Example: 8 tokens, window 4, blocks of 4 -> 1. Source: V1."""
    return first_seen(num_tokens, window) // block_size


def window_and_two_blocks(num_tokens: int, window: int, block_size: int) -> int:
    """All but the window's full blocks and two more. Example: 20 tokens, window 8, blocks of 4 -> 1. Source: V0."""
    return max(0, num_tokens // block_size - (window // block_size + 2))


def most_blocks(num_tokens: int, chunk: int, window: Window, block_size: int, release: WindowRelease) -> int:
    """How many blocks one group holds at most while a sequence grows to `num_tokens`, `chunk` at most in a launch.

    `release` says which blocks are released before a launch. Example: 100 tokens in chunks of 8, window 8, blocks of 4,
    below_window -> 5.
    """
    whole = -(-num_tokens // block_size)
    return whole if window is None else min(whole, _steady(chunk, window, block_size, release))


@lru_cache(maxsize=256)
def _steady(chunk: int, window: int, block_size: int, release: WindowRelease) -> int:
    """The most of any launch behind more tokens than the window holds, at each place in a block where it may begin."""
    far = (window // block_size + 4) * block_size
    starts = range(far, far + block_size)
    return max(-(-(start + chunk) // block_size) - release(start, window, block_size) for start in starts)


def agreed_prefix(found: Sequence[Sequence[int | None]], windows: Sequence[Window], block_size: int) -> int:
    """How many leading whole blocks of a prompt need not be computed in any group.

    `found[group][j]` is the group's cached block for logical block j, or None. A group with full attention needs every
    block from block 0 on; a group with a window needs only the blocks that the next token sees. Example, blocks of 4:
    a full group has blocks 0 and 1 cached, a group of window 4 has block 1 alone -> 2. Source: vLLM V1's hybrid
    coordinator.
    """
    length = len(found[0])
    while True:
        agreed = length
        for row, window in zip(found, windows, strict=True):
            agreed = _own_prefix(row[:agreed], window, block_size)
        if agreed == length:
            return length
        length = agreed


def _own_prefix(row: Sequence[int | None], window: Window, block_size: int) -> int:
    if window is None:
        return next((j for j, block in enumerate(row) if block is None), len(row))
    for length in range(len(row), 0, -1):
        if all(block is not None for block in row[below_window(length * block_size, window, block_size) : length]):
            return length
    return 0
