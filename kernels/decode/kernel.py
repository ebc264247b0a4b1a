"""The kernel of `paged_decode`: one program attends for one KV head over one split of one sequence.

    out = softmax(q K^T * scale) V, token t of a sequence lying in block block_table[t // block_size] at t % block_size

computed tile after tile with a running maximum m, a running sum l and an accumulator (FlashAttention's online softmax,
`tile.py`). Where there are too few sequences to keep a GPU busy, several programs split one sequence between
them and `combine_splits.py` joins what they found.
Bytes moved per cached token: 2 (K and V) * num_kv_heads * head_dim * size of an element, each read once, whatever the
number of query heads. At one flop per byte or so, that memory traffic is the whole cost.
"""

# Triton kernels are untyped by nature; the launchers are not.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl

from kernels.bundles import Scale, Table, cache_of_kv_head
from kernels.decode.report_turn import report_turn
from kernels.decode.tile import attend_tile


@triton.jit
def paged_decode_kernel(
    out,  # [num_seqs, num_splits, num_heads, head_dim], contiguous
    lse,  # [num_seqs, num_splits, num_heads] float32, contiguous; None when there is one split
    lens,  # Lens: buffers for what each turn held; None in production, and then no code of it is compiled
    max_turns,  # of the lens; None without one
    q,  # Queries [num_seqs, num_heads, head_dim]
    k_cache,  # Cache [num_blocks, block_size, num_kv_heads, head_dim]
    v_cache,  # Cache, likewise
    block_tables,  # Table [num_seqs, max_blocks]
    seq_lens,  # [num_seqs]
    k_scale,  # Scale
    v_scale,  # Scale
    score_scale,
    softcap_log2e,
    window,
    NUM_HEADS: tl.constexpr,
    HEADS_PER_KV: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE_HEADS: tl.constexpr,
    TILE_DIM: tl.constexpr,
    TILE_TOKENS: tl.constexpr,
    TILE_LANES: tl.constexpr,
    DOT_TYPE: tl.constexpr,
    NARROW_Q: tl.constexpr,
    SOFTCAP: tl.constexpr,
    MASK_ALL: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    # Offsets are int64 throughout: an id times a stride passes 2^31 elements in any large pool.
    # KV heads are neighbours in memory, so programs that run at the same time are neighbours too.
    num_kv_heads: tl.constexpr = NUM_HEADS // HEADS_PER_KV
    seq = tl.program_id(0).to(tl.int64) // num_kv_heads
    kv_head = tl.program_id(0).to(tl.int64) % num_kv_heads
    split = tl.program_id(1)
    num_splits = tl.num_programs(1)
    dim = tl.arange(0, TILE_DIM).to(tl.int64)[None, :]
    lane = tl.arange(0, TILE_LANES)

    # The tokens of this program: of those that the window shows, its split's share of whole tiles, perhaps none. Where
    # a tile must be one block, the first tile begins before the window if its block does, and the mask hides that part.
    seq_len = tl.load(seq_lens + seq).to(tl.int32)
    shown = tl.maximum(seq_len - window, 0)
    origin = shown // TILE_TOKENS * TILE_TOKENS if MASK_ALL else shown
    share = tl.cdiv(tl.cdiv(seq_len - origin, num_splits), TILE_TOKENS) * TILE_TOKENS
    start = tl.minimum(origin + split * share, seq_len)
    stop = tl.minimum(start + share, seq_len)

    # The query heads that share this KV head are the rows of one dot, so that each key is read once for all of them.
    row = tl.arange(0, TILE_HEADS)[:, None]
    head = kv_head * HEADS_PER_KV + row
    real_q = (row < HEADS_PER_KV) & (dim < HEAD_DIM)
    query = tl.load(q.start + seq * q.token + head * q.head + dim * q.dim, mask=real_q, other=0.0)
    score_scale = tl.full([TILE_HEADS], 1.0, tl.float32) * score_scale
    if NARROW_Q:
        # q is of a wider range than the dot, float16 for 8-bit caches: set each row's largest number aside.
        largest = tl.max(tl.abs(query.to(tl.float32)), 1)
        query = query.to(tl.float32) / tl.where(largest > 0.0, largest, 1.0)[:, None]
        score_scale = score_scale * largest
    query = query.to(DOT_TYPE)
    if k_scale.by_head is not None:
        score_scale = score_scale * tl.load(k_scale.by_head + kv_head)

    # m and l in the papers: the largest score so far, and the sum of exp2(score - largest).
    running_max = tl.full([TILE_HEADS], -float("inf"), tl.float32)
    running_sum = tl.full([TILE_HEADS], 0.0, tl.float32)
    acc = tl.full([TILE_HEADS, TILE_DIM], 0.0, tl.float32)

    table = Table(block_tables.start + seq * block_tables.seq, block_tables.seq, block_tables.column)
    keys = cache_of_kv_head(k_cache, kv_head, TILE_DIM)
    values = cache_of_kv_head(v_cache, kv_head, TILE_DIM)
    if k_scale.by_slot is not None:
        k_scale = Scale(None, k_scale.by_slot + kv_head * k_scale.head, k_scale.block, k_scale.offset, k_scale.head)
    if v_scale.by_slot is not None:
        v_scale = Scale(None, v_scale.by_slot + kv_head * v_scale.head, v_scale.block, v_scale.offset, v_scale.head)

    # Whole tiles first, without a mask; then what is left, or every tile where a tile must be one block.
    whole_until = start if MASK_ALL else start + (stop - start) // TILE_TOKENS * TILE_TOKENS
    if not MASK_ALL:
        for first in range(start, whole_until, TILE_TOKENS):
            acc, running_max, running_sum, _, _ = attend_tile(
                acc,
                running_max,
                running_sum,
                query,
                score_scale,
                softcap_log2e,
                first + lane,
                lane >= 0,
                table,
                keys,
                values,
                k_scale,
                v_scale,
                dim < HEAD_DIM,
                BLOCK_SIZE,
                TILE_DIM != HEAD_DIM,
                SOFTCAP,
                MASKED=False,
            )
    for first in tl.range(whole_until, stop, TILE_TOKENS, num_stages=1):
        token = first + lane
        mine = (lane < TILE_TOKENS) & (token >= shown) & (token < stop)
        acc, running_max, running_sum, block, score = attend_tile(
            acc,
            running_max,
            running_sum,
            query,
            score_scale,
            softcap_log2e,
            token,
            mine,
            table,
            keys,
            values,
            k_scale,
            v_scale,
            dim < HEAD_DIM,
            BLOCK_SIZE,
            TILE_DIM != HEAD_DIM,
            SOFTCAP,
            MASKED=True,
        )
        if lens is not None:
            turn = (first - whole_until) // TILE_TOKENS
            of_kv_head = ((seq * num_kv_heads + kv_head) * num_splits + split) * max_turns + turn
            of_head = ((seq * NUM_HEADS + head) * num_splits + split) * max_turns + turn
            real_head = row < HEADS_PER_KV
            report_turn(
                lens, of_kv_head, of_head, real_head, token, mine, block, score, running_max, running_sum, acc, HEAD_DIM
            )

    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
    # Without a token nothing was summed: 0 / 1 gives the zeros that 0 / 0 would not, and lse stays -inf.
    running_sum = tl.where(stop > start, running_sum, 1.0)
    acc = acc / running_sum[:, None]
    if v_scale.by_head is not None:
        acc = acc * tl.load(v_scale.by_head + kv_head)
    found = (seq * num_splits + split) * NUM_HEADS + head
    tl.store(out + found * HEAD_DIM + dim, acc.to(out.dtype.element_ty), mask=real_q)
    if lse is not None:
        tl.store(lse + found, (running_max + tl.log2(running_sum))[:, None], mask=row < HEADS_PER_KV)
