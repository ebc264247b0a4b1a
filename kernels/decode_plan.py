"""How `paged_decode` cuts its work: constants measured on an H200, and splits chosen from shapes alone.

Lengths lie on the GPU, and reading them here would stop it; a CUDA graph captured at one length must also stay right at
another. So the number of splits comes from the table's width, and each program works out its own share on the GPU.
"""

from typing import NamedTuple

# tl.dot takes no side shorter than this when compiled; the interpreter would not notice.
SHORTEST_DOT = 16
# A tile of 64 tokens of 128 half-precision dims: larger ones spill, smaller ones leave memory idle.
TILE_BYTES = 64 * 128 * 2
# The kernel that joins the splits holds them all at once.
MOST_SPLITS = 128


class Plan(NamedTuple):
    """The tile of tokens that one iteration takes, the splits of a sequence, and Triton's warps and stages."""

    tile_tokens: int
    num_splits: int
    num_warps: int
    num_stages: int


# Measured by padded query heads per KV head and bytes per cached number: tokens, warps, stages, and programs wanted in
# all. An H200 has 132 multiprocessors: four programs fit on each, or two where 32 heads need more room.
FASTEST = {
    (16, 2): (64, 2, 4, 528),
    (16, 1): (64, 2, 5, 528),
    (32, 2): (64, 2, 5, 264),
    (32, 1): (128, 4, 5, 264),
}
UNMEASURED = (64, 4, 2, 264)


def plan(num_seqs: int, num_kv_heads: int, tile_heads: int, tile_dim: int, element_size: int, most_tokens: int) -> Plan:
    """Choose how to decode `num_seqs` sequences of up to `most_tokens` tokens each.

    `tile_heads` and `tile_dim` are the padded query heads per KV head and head_dim, `element_size` the bytes of one
    cached number.

    Example: 8 sequences of 8192 tokens, 8 KV heads -> 64 programs without splits, so 528 // 64 = 8 splits of 16 tiles.
    """
    tokens, num_warps, num_stages, programs = FASTEST.get((tile_heads, element_size), UNMEASURED)
    tile_tokens = max(SHORTEST_DOT, min(tokens, TILE_BYTES // (tile_dim * element_size)))
    if tile_tokens < 64:
        # Long rows: deep pipelines of them would not fit a multiprocessor's memory.
        num_stages = 2
    most_tiles = -(-most_tokens // tile_tokens)
    num_splits = min(programs // max(1, num_seqs * num_kv_heads), MOST_SPLITS, most_tiles // 2)
    return Plan(tile_tokens, max(1, num_splits), num_warps, num_stages)
