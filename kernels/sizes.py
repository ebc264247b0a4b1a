"""Sizes that kernels and their plans must keep to.

In plain Python: a call of `triton.cdiv` or `triton.next_power_of_2` costs a launch several microseconds.
"""

# tl.dot takes no side shorter than this when compiled; the interpreter would not notice.
SHORTEST_DOT = 16
# The kernel that joins the splits of a sequence holds them all at once.
MOST_SPLITS = 128


def power_of_two(at_least: int) -> int:
    """Return the smallest power of two that is not below a positive size."""
    return 1 << (at_least - 1).bit_length()


def padded(heads_or_dims: int) -> int:
    """Round up to what one side of a dot may be."""
    return max(SHORTEST_DOT, power_of_two(heads_or_dims))


def cdiv(size: int, tile: int) -> int:
    """Return how many tiles cover a size."""
    return -(-size // tile)
