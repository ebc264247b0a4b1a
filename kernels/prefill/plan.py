"""How `paged_prefill` cuts its work: constants measured on an H200, and splits chosen from shapes alone.

Lengths lie on the GPU, and reading them here would stop it; a CUDA graph captured at one length must also stay right at
another. So tiles and splits come from the number of tokens and sequences and the table's width.
"""

from typing import NamedTuple

from kernels.sizes import MOST_SPLITS, SHORTEST_DOT

# What a multiprocessor's memory holds of queries, and of a tile of keys; and the accumulator of four warps' registers.
QUERY_BYTES, TILE_BYTES, ACCUMULATOR = 128 * 256 * 2, 128 * 128 * 2, 64 * 256


class Plan(NamedTuple):
    """Rows (queries times heads of a KV head) and tokens of a tile, splits of a piece, Triton's warps and stages."""

    tile_rows: int
    tile_tokens: int
    num_splits: int
    num_warps: int
    num_stages: int


# Measured by rows, at two bytes a cached number: tokens, warps, stages, and programs wanted in all. Two programs of 64
# rows share a multiprocessor, and one computes while the other waits; 128 rows have one to themselves.
FASTEST = {16: (64, 2, 4, 528), 32: (128, 4, 5, 132), 64: (64, 4, 5, 264), 128: (128, 8, 5, 132)}
UNMEASURED = (64, 4, 3, 264)
# Exact float32 dots run on no tensor core and hold their operands in registers.
FLOAT32_ROWS, FLOAT32 = 32, (32, 4, 2, 264)


def plan(
    num_tokens: int,
    num_seqs: int,
    num_kv_heads: int,
    group: int,
    tile_dim: int,
    element_size: int,
    block_size: int,
    most_keys: int,
) -> Plan:
    """Choose how to prefill `num_tokens` new tokens of `num_seqs` sequences that see up to `most_keys` keys each.

    `group` is the query heads per KV head, `tile_dim` the padded head_dim, `element_size` the bytes of a cached number.

    Example: 16 sequences of 5 tokens, 4 query heads each of 8 KV heads -> 20 rows, so tiles of 32; 128 programs.
    """
    queries = -(-num_tokens // max(1, num_seqs))
    most_rows = {1: 64, 2: 128, 4: FLOAT32_ROWS}[element_size]
    # Short sequences leave tiles of 128 rows half empty, and a block of 64 does not hold a box of 128 tokens.
    if queries * group < 512 or block_size % 128 == 64:
        most_rows = min(most_rows, 64)
    most_rows = max(SHORTEST_DOT, min(most_rows, QUERY_BYTES // (tile_dim * max(element_size, 2))))
    tile_rows = SHORTEST_DOT
    while tile_rows < group or (tile_rows < queries * group and tile_rows < most_rows):
        tile_rows *= 2
    measured = FASTEST.get(tile_rows, UNMEASURED) if element_size == 2 else UNMEASURED
    tile_tokens, num_warps, num_stages, programs = FLOAT32 if element_size == 4 else measured
    if tile_dim > 128 or tile_rows > 128:
        # Long rows: deep pipelines of them would not fit a multiprocessor's memory.
        tile_tokens, num_stages = min(tile_tokens, 64), min(num_stages, 3)
    if tile_rows * tile_dim > ACCUMULATOR:
        num_warps = 8
    tile_tokens = max(SHORTEST_DOT, min(tile_tokens, TILE_BYTES // (tile_dim * max(element_size, 2))))
    pieces = max(1, num_seqs) * -(-queries * group // tile_rows)
    num_splits = min(programs // (pieces * num_kv_heads), MOST_SPLITS, most_keys // tile_tokens // 2)
    return Plan(tile_rows, tile_tokens, max(1, num_splits), num_warps, num_stages)
