"""The kernel of `paged_prefill`: one program attends for one KV head from one piece, a sequence's next few queries.

    out = softmax(q K^T * scale) V, token t of a sequence lying in block block_table[t // block_size] at t % block_size

The query heads of the KV head times the piece's queries are the rows of one dot, so that a key is read once for all of
them. Tiles that every row sees all of go first, without a mask; then, masked, those that some row sees in part: the
causal diagonal, the edge of a window, the sequence's end. (In the other order ptxas cannot keep the accumulator still
between the two loops, and gives up overlapping the dots: a third of the speed.) Flops: 4 * num_heads * head_dim for
each pair of a query and a key that it sees.
"""

# Triton kernels are untyped by nature; the launchers are not.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl

from kernels.bundles import Scale, Table, cache_of_kv_head
from kernels.prefill.piece import read_rows, share_tiles, write_rows
from kernels.prefill.slots import attend_slots


@triton.jit
def paged_prefill_kernel(
    out,  # [num_tokens, num_splits, num_heads, head_dim], contiguous
    lse,  # [num_tokens, num_splits, num_heads] float32, contiguous; None when there is one split
    q,  # Queries [num_tokens, num_heads, head_dim]
    k_cache,  # Cache [num_blocks, block_size, num_kv_heads, head_dim], its strides of block and offset constants
    v_cache,  # Cache, likewise
    block_tables,  # Table [num_seqs, max_blocks]
    pieces,  # [num_pieces, 4] int32, contiguous: `work.py`
    k_scale,  # Scale
    v_scale,  # Scale
    score_scale,
    softcap_log2e,
    window,
    NUM_HEADS: tl.constexpr,
    HEADS_PER_KV: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_DIM: tl.constexpr,
    TILE_TOKENS: tl.constexpr,
    TILE_LANES: tl.constexpr,
    DOT_TYPE: tl.constexpr,
    NARROW_Q: tl.constexpr,
    SOFTCAP: tl.constexpr,
    WINDOW: tl.constexpr,
    MASK_ALL: tl.constexpr,
):
    # All heads of a piece before the next piece: the list says which pieces should start first.
    kv_head = (tl.program_id(0) % (NUM_HEADS // HEADS_PER_KV)).to(tl.int64)
    piece = pieces + (tl.program_id(0) // (NUM_HEADS // HEADS_PER_KV)) * 4
    split = tl.program_id(1)
    num_splits = tl.num_programs(1)
    seq = tl.load(piece).to(tl.int64)
    first_query = tl.load(piece + 1).to(tl.int64)
    num_queries = tl.load(piece + 2)
    first_last = tl.load(piece + 3)

    first_head = kv_head * HEADS_PER_KV
    query = read_rows(
        q,
        first_query,
        num_queries,
        first_head,
        HEADS_PER_KV,
        HEAD_DIM,
        TILE_ROWS,
        TILE_DIM,
    )
    PLAIN: tl.constexpr = not SOFTCAP and not NARROW_Q and k_scale.by_head is None and k_scale.by_slot is None
    if NARROW_Q:
        # q is of a wider range than the dot, float16 for 8-bit caches: set each row's largest number aside.
        largest = tl.max(tl.abs(query.to(tl.float32)), 1)
        query = query.to(tl.float32) / tl.where(largest > 0.0, largest, 1.0)[:, None]
        score_scale = (score_scale * largest)[:, None]
    query = query.to(DOT_TYPE)
    if k_scale.by_head is not None:
        score_scale = score_scale * tl.load(k_scale.by_head + kv_head)

    running_max = tl.full([TILE_ROWS], -float("inf"), tl.float32)
    running_sum = tl.full([TILE_ROWS], 0.0, tl.float32)
    acc = tl.full([TILE_ROWS, TILE_DIM], 0.0, tl.float32)

    dim = tl.arange(0, TILE_DIM).to(tl.int64)[None, :]
    table = Table(block_tables.start + seq * block_tables.seq, block_tables.seq, block_tables.column)
    keys = cache_of_kv_head(k_cache, kv_head, TILE_DIM)
    values = cache_of_kv_head(v_cache, kv_head, TILE_DIM)
    if k_scale.by_slot is not None:
        k_scale = Scale(None, k_scale.by_slot + kv_head * k_scale.head, k_scale.block, k_scale.offset, k_scale.head)
    if v_scale.by_slot is not None:
        v_scale = Scale(None, v_scale.by_slot + kv_head * v_scale.head, v_scale.block, v_scale.offset, v_scale.head)
    lane = tl.arange(0, TILE_LANES)
    last_seen = first_last + tl.arange(0, TILE_ROWS) // HEADS_PER_KV

    start, stop, first_tile, before, whole_from, whole_until, after = share_tiles(
        first_last, num_queries, window, split, num_splits, TILE_TOKENS, MASK_ALL
    )
    if not MASK_ALL:
        for tile in range(whole_from, whole_until):
            acc, running_max, running_sum = attend_slots(
                acc,
                running_max,
                running_sum,
                query,
                score_scale,
                softcap_log2e,
                tile,
                lane,
                lane >= 0,
                None,
                table,
                keys,
                values,
                k_scale,
                v_scale,
                dim < HEAD_DIM,
                TILE_TOKENS,
                BLOCK_SIZE,
                TILE_DIM != HEAD_DIM,
                SOFTCAP,
                PLAIN,
                MASKED=False,
            )

    for i in tl.range(0, before + after, num_stages=1):
        tile = tl.where(i < before, first_tile + i, whole_until + i - before)
        token = tile * TILE_TOKENS + lane
        mine = (lane < TILE_TOKENS) & (token >= start) & (token < stop)
        seen = token[None, :] <= last_seen[:, None]
        if WINDOW:
            seen &= token[None, :] > last_seen[:, None] - window
        if TILE_LANES != TILE_TOKENS:
            seen &= (lane < TILE_TOKENS)[None, :]
        acc, running_max, running_sum = attend_slots(
            acc,
            running_max,
            running_sum,
            query,
            score_scale,
            softcap_log2e,
            tile,
            lane,
            mine,
            seen,
            table,
            keys,
            values,
            k_scale,
            v_scale,
            dim < HEAD_DIM,
            TILE_TOKENS,
            BLOCK_SIZE,
            TILE_DIM != HEAD_DIM,
            SOFTCAP,
            PLAIN,
            MASKED=True,
        )
    if v_scale.by_head is not None:
        acc = acc * tl.load(v_scale.by_head + kv_head)
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
        TILE_DIM,
    )
