"""Attention from one new token per sequence to the keys and values that its block table points at.

    out = softmax(q K^T * scale) V, token t of a sequence lying in block block_table[t // block_size] at t % block_size

computed tile after tile with a running maximum m, a running sum l and an accumulator (FlashAttention's online softmax).
Bytes moved per cached token: 2 (K and V) * num_kv_heads * head_dim * size of an element, each read once, whatever the
number of query heads. At one flop per byte or so, that memory traffic is the whole cost.
"""

# Triton kernels are untyped by nature; the launchers are not.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import checks, launch

TRITON_TYPE = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}
# tl.dot takes no side shorter than this when compiled; the interpreter would not notice.
SHORTEST_DOT = 16


@triton.jit
def paged_decode_kernel(
    out,  # [num_seqs, num_heads, head_dim], contiguous
    q,  # [num_seqs, num_heads, head_dim]
    k_cache,  # [num_blocks, block_size, num_kv_heads, head_dim]
    v_cache,  # [num_blocks, block_size, num_kv_heads, head_dim]
    block_tables,  # [num_seqs, max_blocks]
    seq_lens,  # [num_seqs]
    scale_log2e,
    stride_qs,
    stride_qh,
    stride_qd,
    stride_kb,
    stride_kt,
    stride_kh,
    stride_kd,
    stride_vb,
    stride_vt,
    stride_vh,
    stride_vd,
    stride_ts,
    stride_tb,
    NUM_HEADS: tl.constexpr,
    HEADS_PER_KV: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE_HEADS: tl.constexpr,
    TILE_DIM: tl.constexpr,
    TILE_TOKENS: tl.constexpr,
    TILE_LANES: tl.constexpr,
    DOT_TYPE: tl.constexpr,
):
    # Offsets are int64 throughout: an id times a stride passes 2^31 elements in any large pool.
    seq = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1).to(tl.int64)
    dim = tl.arange(0, TILE_DIM).to(tl.int64)[None, :]
    lane = tl.arange(0, TILE_LANES)
    seq_len = tl.load(seq_lens + seq).to(tl.int32)

    # The query heads that share this KV head are the rows of one dot, so that each key is read once for all of them.
    row = tl.arange(0, TILE_HEADS)[:, None]
    head = kv_head * HEADS_PER_KV + row
    real_q = (row < HEADS_PER_KV) & (dim < HEAD_DIM)
    query = tl.load(q + seq * stride_qs + head * stride_qh + dim * stride_qd, mask=real_q, other=0.0).to(DOT_TYPE)

    # m and l in the papers: the largest score so far, and the sum of exp2(score - largest).
    running_max = tl.full([TILE_HEADS], -float("inf"), tl.float32)
    running_sum = tl.full([TILE_HEADS], 0.0, tl.float32)
    acc = tl.full([TILE_HEADS, TILE_DIM], 0.0, tl.float32)

    table = block_tables + seq * stride_ts
    keys = k_cache + kv_head * stride_kh + dim * stride_kd
    values = v_cache + kv_head * stride_vh + dim * stride_vd

    for first in range(0, seq_len, TILE_TOKENS):
        token = first + lane
        mine = (lane < TILE_TOKENS) & (token < seq_len)
        # A lane without a token of ours reads no table entry: the row may end here, or hold anything.
        page = (token // BLOCK_SIZE).to(tl.int64)
        block = tl.load(table + page * stride_tb, mask=mine, other=0).to(tl.int64)[:, None]
        offset = (token % BLOCK_SIZE).to(tl.int64)[:, None]
        # Neither K nor V is read from a slot that is not ours: zero times the NaN that may lie there would be NaN.
        real_kv = mine[:, None] & (dim < HEAD_DIM)

        key = tl.load(keys + block * stride_kb + offset * stride_kt, mask=real_kv, other=0.0).to(DOT_TYPE)
        score = tl.dot(query, tl.trans(key), input_precision="ieee") * scale_log2e
        score = tl.where(mine[None, :], score, -float("inf"))

        new_max = tl.maximum(running_max, tl.max(score, 1))
        weight = tl.exp2(score - new_max[:, None])
        shrink = tl.exp2(running_max - new_max)
        running_sum = running_sum * shrink + tl.sum(weight, 1)
        running_max = new_max

        value = tl.load(values + block * stride_vb + offset * stride_vt, mask=real_kv, other=0.0).to(DOT_TYPE)
        acc = tl.dot(weight.to(DOT_TYPE), value, acc * shrink[:, None], input_precision="ieee")

    # An empty sequence has summed nothing: 0 / 1 writes the zeros that 0 / 0 would not.
    acc = acc / tl.where(seq_len > 0, running_sum, 1.0)[:, None]
    to = (seq * NUM_HEADS + head) * HEAD_DIM + dim
    tl.store(out + to, acc.to(out.dtype.element_ty), mask=real_q)


def paged_decode(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    scale: float | None = None,
    *,
    window: int | None = None,
    softcap: float | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    tokens_per_tile: int | None = None,
) -> Tensor:
    """Attend from one new token per sequence to all its cached tokens, wherever their blocks lie.

    q [num_seqs, num_heads, head_dim], any strides, float32, float16 or bfloat16; the caches are of the same dtype.
    k_cache, v_cache [num_blocks, block_size, num_kv_heads, head_dim], any strides (K and V may be views of one pool);
    query head h reads KV head h // (num_heads // num_kv_heads). block_tables [num_seqs, max_blocks] and seq_lens
    [num_seqs], int32 or int64: entries past ceil(seq_len / block_size) may be anything and are never followed.
    `scale` is 1 / sqrt(head_dim) unless given. `tokens_per_tile` is how many tokens one iteration takes: None for what
    is fast, block_size for one block an iteration. `window`, `softcap`, `k_scale` and `v_scale` raise
    NotImplementedError so far.

    Returns a new tensor like q; a sequence of length 0 gives zeros. Raises ValueError on shapes, head counts, dtypes or
    devices that do not fit, and on the CPU on block ids outside the cache or lengths past the table.

    Example: block_table=[7, 2], seq_len=6, block_size=4 -> tokens 0 to 3 in block 7, 4 and 5 at offsets 0 and 1 of 2.
    Source: Kwon et al., PagedAttention, arXiv 2309.06180; Dao, FlashAttention-2, arXiv 2307.08691.
    """
    checks.paged_decode(q, k_cache, v_cache, block_tables, seq_lens, tokens_per_tile)
    checks.options("paged_decode", window=window, softcap=softcap, k_scale=k_scale, v_scale=v_scale)
    num_seqs, num_heads, head_dim = q.shape
    _, block_size, num_kv_heads, _ = k_cache.shape
    # The interpreter's bfloat16 is not to be trusted: its dot is garbage, its rounding truncates. It works in float32.
    out = torch.empty(q.shape, dtype=torch.float32 if launch.INTERPRETED else q.dtype, device=q.device)
    if num_seqs == 0:
        return out.to(q.dtype)
    scale = head_dim**-0.5 if scale is None else scale
    tile_heads = max(SHORTEST_DOT, triton.next_power_of_2(num_heads // num_kv_heads))
    tile_dim = max(SHORTEST_DOT, triton.next_power_of_2(head_dim))
    if tokens_per_tile is None:
        # 64 tokens of 128 half-precision dims, measured on an H200: larger tiles spill, smaller ones leave memory idle.
        tokens_per_tile = max(SHORTEST_DOT, min(64, 64 * 128 * 2 // (tile_dim * q.element_size())))
    with launch.launching(q):
        paged_decode_kernel[num_seqs, num_kv_heads](
            out,
            q,
            k_cache,
            v_cache,
            block_tables,
            seq_lens.contiguous(),
            scale * math.log2(math.e),
            *q.stride(),
            *k_cache.stride(),
            *v_cache.stride(),
            *block_tables.stride(),
            NUM_HEADS=num_heads,
            HEADS_PER_KV=num_heads // num_kv_heads,
            HEAD_DIM=head_dim,
            BLOCK_SIZE=block_size,
            TILE_HEADS=tile_heads,
            TILE_DIM=tile_dim,
            TILE_TOKENS=tokens_per_tile,
            TILE_LANES=max(SHORTEST_DOT, triton.next_power_of_2(tokens_per_tile)),
            DOT_TYPE=tl.float32 if launch.INTERPRETED else TRITON_TYPE[q.dtype],
            num_warps=2 if tile_heads == SHORTEST_DOT else 4,
            num_stages=2,
        )
    return out.to(q.dtype)
