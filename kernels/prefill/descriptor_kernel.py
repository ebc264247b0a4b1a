"""The kernel of `paged_prefill` where a tile of tokens lies inside one block: the GPU's copy engine fetches it whole.

As `kernel.py`, but a tile of K or V is one box of a tensor descriptor (TMA): its tokens lie side by side, so
that one thread asks for all of it, and no thread computes addresses. The kernel sees a cache as a matrix: a row is as
long as the stride of a token; block, offset and head of a tile give its row and column.
"""

# Triton kernels are untyped by nature; the launchers are not.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl

from kernels.prefill.piece import read_rows, share_tiles, write_rows
from kernels.prefill.tile import take_tile


@triton.jit
def place_of(block, kv_head, offset, places):
    """Return the row and the column at which, from this offset in a block on, a head's box begins."""
    row = block * places.rows_per_block + kv_head * places.rows_per_head + offset
    return row, kv_head * places.columns_per_head


@triton.jit
def paged_prefill_descriptor_kernel(
    out,  # [num_tokens, num_splits, num_heads, head_dim], contiguous
    lse,  # [num_tokens, num_splits, num_heads] float32, contiguous; None when there is one split
    q,  # Queries [num_tokens, num_heads, head_dim]
    k_boxes,  # descriptor of the K cache as a matrix, boxes of [TILE_TOKENS, HEAD_DIM]
    v_boxes,  # descriptor of the V cache
    k_places,  # Places: where in the matrix a block and a head begin
    v_places,  # Places
    block_tables,  # Table [num_seqs, max_blocks]
    pieces,  # [num_pieces, 4] int32, contiguous: `work.py`
    score_scale,
    softcap_log2e,
    window,
    NUM_HEADS: tl.constexpr,
    HEADS_PER_KV: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_TOKENS: tl.constexpr,
    DOT_TYPE: tl.constexpr,
    SOFTCAP: tl.constexpr,
    WINDOW: tl.constexpr,
):
    # All heads of a piece before the next piece: the list says which pieces should start first.
    kv_head = tl.program_id(0) % (NUM_HEADS // HEADS_PER_KV)
    piece = pieces + (tl.program_id(0) // (NUM_HEADS // HEADS_PER_KV)) * 4
    split = tl.program_id(1)
    num_splits = tl.num_programs(1)
    seq = tl.load(piece).to(tl.int64)
    first_query = tl.load(piece + 1).to(tl.int64)
    num_queries = tl.load(piece + 2)
    first_last = tl.load(piece + 3)

    first_head = kv_head.to(tl.int64) * HEADS_PER_KV
    query = read_rows(
        q,
        first_query,
        num_queries,
        first_head,
        HEADS_PER_KV,
        HEAD_DIM,
        TILE_ROWS,
        HEAD_DIM,
    ).to(DOT_TYPE)

    running_max = tl.full([TILE_ROWS], -float("inf"), tl.float32)
    running_sum = tl.full([TILE_ROWS], 0.0, tl.float32)
    acc = tl.full([TILE_ROWS, HEAD_DIM], 0.0, tl.float32)
    table = block_tables.start + seq * block_tables.seq
    lane = tl.arange(0, TILE_TOKENS)
    last_seen = first_last + tl.arange(0, TILE_ROWS) // HEADS_PER_KV

    start, stop, first_tile, before, whole_from, whole_until, after = share_tiles(
        first_last, num_queries, window, split, num_splits, TILE_TOKENS, False
    )
    TILES_A_BLOCK: tl.constexpr = BLOCK_SIZE // TILE_TOKENS
    for i in tl.range(0, whole_until - whole_from):
        tile = whole_from + i
        block = tl.load(table + (tile // TILES_A_BLOCK).to(tl.int64) * block_tables.column).to(tl.int32)
        offset = tile % TILES_A_BLOCK * TILE_TOKENS
        key = k_boxes.load(place_of(block, kv_head, offset, k_places)).to(DOT_TYPE)
        dots = tl.dot(query, tl.trans(key))
        value = v_boxes.load(place_of(block, kv_head, offset, v_places)).to(DOT_TYPE)
        acc, running_max, running_sum = take_tile(
            acc,
            running_max,
            running_sum,
            dots,
            value,
            score_scale,
            softcap_log2e,
            None,
            None,
            None,
            SOFTCAP,
            not SOFTCAP,
            MASKED=False,
        )
    for i in tl.range(0, before + after, num_stages=1):
        tile = tl.where(i < before, first_tile + i, whole_until + i - before)
        block = tl.load(table + (tile // TILES_A_BLOCK).to(tl.int64) * block_tables.column).to(tl.int32)
        offset = tile % TILES_A_BLOCK * TILE_TOKENS
        key = k_boxes.load(place_of(block, kv_head, offset, k_places)).to(DOT_TYPE)
        token = tile * TILE_TOKENS + lane
        mine = (token >= start) & (token < stop)
        seen = token[None, :] <= last_seen[:, None]
        if WINDOW:
            seen &= token[None, :] > last_seen[:, None] - window
        dots = tl.dot(query, tl.trans(key))
        value = v_boxes.load(place_of(block, kv_head, offset, v_places)).to(DOT_TYPE)
        # The box may hold slots without a token of the sequence: NaN may lie there, and zero times NaN is NaN.
        value = tl.where(mine[:, None], value, 0.0)
        acc, running_max, running_sum = take_tile(
            acc,
            running_max,
            running_sum,
            dots,
            value,
            score_scale,
            softcap_log2e,
            seen,
            None,
            None,
            SOFTCAP,
            not SOFTCAP,
            MASKED=True,
        )
    write_rows(
        out,
        lse,
        acc,
        running_max,
        running_sum,
        first_query,
        num_queries,
        first_head,
        split,
        num_splits,
        NUM_HEADS,
        HEADS_PER_KV,
        HEAD_DIM,
        TILE_ROWS,
        HEAD_DIM,
    )
