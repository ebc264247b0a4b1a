"""How `paged_decode` cuts its work: constants measured on an H200, and splits chosen from shapes alone.

Lengths lie on the GPU, and reading them here would stop it; a CUDA graph captured at one length must also stay right at
another. So the number of splits comes from the table's width, and each program works out its own share on the GPU.
"""

import functools
from typing import NamedTuple

from kernels.sizes import MOST_SPLITS, SHORTEST_DOT

# A tile of 64 tokens of 128 half-precision dims: larger ones spill, smaller ones leave memory idle.
TILE_BYTES = 64 * 128 * 2


class Plan(NamedTuple):
    """The tile of tokens that one iteration takes, the splits of a sequence, and Triton's warps and stages."""

    tile_tokens: int
    num_splits: int
    num_warps: int
    num_stages: int


# Starting a program and joining its split take about as long as so many turns of the loop.
START_TURNS = 6
# Splits write and read partial results, so they must save at least this much time.
WORTH_SPLITTING = 1.05


class Pace(NamedTuple):
    """Tokens a tile, Triton's warps and stages, and the programs that an H200's 132 multiprocessors run at once."""

    tokens: int
    num_warps: int
    num_stages: int
    slots: int


# Measured by padded query heads per KV head and bytes of a cached row of one head. With 5 stages the next tile is under
# way while one is computed, so two programs keep a multiprocessor's memory busy; with 4 it takes four programs.
FASTEST = {
    (16, 256): Pace(64, 2, 4, 528),
    (16, 128): Pace(64, 2, 5, 528),
    (32, 256): Pace(64, 2, 5, 264),
    (32, 128): Pace(128, 4, 5, 264),
    (16, 512): Pace(32, 2, 2, 528),
    (32, 512): Pace(32, 2, 2, 264),
}
# Where there are so few programs without splits, two deep ones beat four.
FEW = 264
FASTEST_OF_FEW = {(16, 256): Pace(64, 2, 5, 264)}
UNMEASURED = Pace(64, 4, 2, 264)


@functools.lru_cache(maxsize=1024)
def plan(num_seqs: int, num_kv_heads: int, tile_heads: int, tile_dim: int, element_size: int, most_tokens: int) -> Plan:
    """Choose how to decode `num_seqs` sequences of up to `most_tokens` tokens each.

    `tile_heads` and `tile_dim` are the padded query heads per KV head and head_dim, `element_size` the bytes of one
    cached number. Programs run in waves, as many at once as there are slots; the splits chosen take the fewest turns of
    the loop over all waves.

    Example: 8 sequences of 8192 tokens, 8 KV heads -> 64 programs of 128 tiles; 4 splits are 256 programs, one wave of
    32 tiles, where 5 would be two waves of 26.
    """
    programs = num_seqs * num_kv_heads
    kind = tile_heads, max(128, tile_dim * element_size)
    measured = FASTEST | FASTEST_OF_FEW if programs <= FEW else FASTEST
    # float32 has no matrix instructions of this accuracy: another kernel as far as speed goes.
    pace = UNMEASURED if element_size == 4 else measured.get(kind, UNMEASURED)
    tile_tokens = max(SHORTEST_DOT, min(pace.tokens, TILE_BYTES // (tile_dim * element_size)))
    # Long rows: deep pipelines of them would not fit a multiprocessor's memory.
    num_stages = pace.num_stages if tile_tokens >= 64 else 2
    most_tiles = -(-most_tokens // tile_tokens)

    def turns(num_splits: int) -> float:
        waves = -(-programs * num_splits // pace.slots)
        price = 1.0 if num_splits == 1 else WORTH_SPLITTING
        return waves * (-(-most_tiles // num_splits) + START_TURNS) * price

    num_splits = min(range(1, max(1, min(MOST_SPLITS, most_tiles // 2)) + 1), key=turns)
    return Plan(tile_tokens, num_splits, pace.num_warps, num_stages)
