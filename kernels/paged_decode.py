"""Attention from one new token per sequence to the keys and values that its block table points at.

The kernel is in `decode_kernel.py`; what is here chooses how to cut the work and launches it, and where several
programs share a sequence, `combine_splits.py` after it.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import check_attention, check_options, checks, decode_plan, launch
from kernels.combine_splits import combine_splits
from kernels.decode_kernel import paged_decode_kernel
from kernels.decode_plan import SHORTEST_DOT

TRITON_TYPE = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}
# More tokens than any sequence has.
NO_WINDOW = 2**31 - 1


def by_head_or_slot(*scales: Tensor | None) -> list[Tensor | None]:
    """Sort scales into those of a whole KV head (in place of the others: None), then those of single slots."""
    by_head = [None if scale is None or scale.ndim == 3 else scale.contiguous() for scale in scales]
    by_slot = [None if scale is None or scale.ndim == 1 else scale for scale in scales]
    return by_head + by_slot


def slot_strides(scale: Tensor | None) -> tuple[int, ...]:
    """Strides of a scale per slot; zeros where there is none."""
    return (0, 0, 0) if scale is None or scale.ndim == 1 else scale.stride()


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
    `scale` is 1 / sqrt(head_dim) unless given; `window` W shows only the last W tokens; `softcap` c bends a score s to
    c * tanh(s / c). The caches may hold int8 or float8 (e4m3fn, e5m2) numbers: a key is what is stored times `k_scale`,
    a value times `v_scale`, float32 [num_kv_heads] or [num_blocks, block_size, num_kv_heads], 1 if None (int8 needs
    both). `tokens_per_tile` is how many tokens one iteration takes: None for what is fast, block_size for one block an
    iteration, all of a sequence's in order in one program per KV head.

    Returns a new tensor like q; a sequence of length 0 gives zeros. Raises ValueError on shapes, head counts, dtypes or
    devices that do not fit, and on the CPU on block ids outside the cache or lengths past the table.

    Example: block_table=[7, 2], seq_len=6, block_size=4 -> tokens 0 to 3 in block 7, 4 and 5 at offsets 0 and 1 of 2.
    Source: Kwon et al., PagedAttention, arXiv 2309.06180; Dao, FlashAttention-2, arXiv 2307.08691.
    """
    check_attention.paged_decode(q, k_cache, v_cache, block_tables, seq_lens, tokens_per_tile)
    check_options.window_and_softcap("paged_decode", window, softcap)
    check_options.scales("paged_decode", k_cache, k_scale, v_scale)
    num_seqs, num_heads, head_dim = q.shape
    _, block_size, num_kv_heads, _ = k_cache.shape
    if num_seqs == 0:
        return torch.empty_like(q)
    narrow = k_cache.dtype in checks.EIGHT_BITS
    # The interpreter's bfloat16 and float8 are not to be trusted: its dot is garbage, its rounding truncates. Torch
    # widens 8-bit caches for it, and it works in float32.
    if launch.INTERPRETED and narrow:
        k_cache, v_cache = k_cache.float(), v_cache.float()
    out_dtype = torch.float32 if launch.INTERPRETED else q.dtype
    # float8 turns into float16 in one instruction, into bfloat16 in several.
    dot_dtype = torch.float16 if narrow and out_dtype != torch.float32 else out_dtype

    tile_heads = max(SHORTEST_DOT, triton.next_power_of_2(num_heads // num_kv_heads))
    tile_dim = max(SHORTEST_DOT, triton.next_power_of_2(head_dim))
    most_tokens = min(block_tables.shape[1] * block_size, window or NO_WINDOW)
    plan = decode_plan.plan(num_seqs, num_kv_heads, tile_heads, tile_dim, k_cache.element_size(), most_tokens)
    if tokens_per_tile is not None:
        plan = plan._replace(tile_tokens=tokens_per_tile, num_splits=1)

    scale = head_dim**-0.5 if scale is None else scale
    score_scale = scale * math.log2(math.e) * (2.0 / softcap if softcap else 1.0)
    out = torch.empty(q.shape, dtype=out_dtype, device=q.device)
    partial, lse = out, None
    if plan.num_splits > 1:
        partial = torch.empty((num_seqs, plan.num_splits, num_heads, head_dim), dtype=torch.float32, device=q.device)
        lse = torch.empty(partial.shape[:3], dtype=torch.float32, device=q.device)
    with launch.launching(q):
        paged_decode_kernel[num_seqs, num_kv_heads, plan.num_splits](
            partial,
            lse,
            q,
            k_cache,
            v_cache,
            block_tables,
            seq_lens.contiguous(),
            *by_head_or_slot(k_scale, v_scale),
            score_scale,
            (softcap or 0.0) * math.log2(math.e),
            window or NO_WINDOW,
            *q.stride(),
            *k_cache.stride(),
            *v_cache.stride(),
            *block_tables.stride(),
            *slot_strides(k_scale),
            *slot_strides(v_scale),
            NUM_HEADS=num_heads,
            HEADS_PER_KV=num_heads // num_kv_heads,
            HEAD_DIM=head_dim,
            BLOCK_SIZE=block_size,
            TILE_HEADS=tile_heads,
            TILE_DIM=tile_dim,
            TILE_TOKENS=plan.tile_tokens,
            TILE_LANES=max(SHORTEST_DOT, triton.next_power_of_2(plan.tile_tokens)),
            DOT_TYPE=TRITON_TYPE[dot_dtype],
            NARROW_Q=dot_dtype != out_dtype,
            SOFTCAP=softcap is not None,
            MASK_ALL=tokens_per_tile is not None,
            num_warps=plan.num_warps,
            num_stages=plan.num_stages,
        )
    if lse is not None:
        combine_splits(out, partial, lse)
    return out.to(q.dtype)
