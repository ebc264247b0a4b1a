"""Attention from one new token per sequence to the keys and values that its block table points at.

The kernel is in `kernel.py`; what is here chooses how to cut the work, launches it (`launch_decode.py`), and
where several programs share a sequence, `combine_splits.py` after it.
"""

import torch
from torch import Tensor

from kernels.checks import attention, options
from kernels.decode import plan as decode_plan
from kernels.decode.combine_splits import combine_splits
from kernels.decode.launch_decode import NO_WINDOW, launch_decode, out_dtype
from kernels.sizes import padded


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
    attention.paged_decode(q, k_cache, v_cache, block_tables, seq_lens, tokens_per_tile)
    options.window_and_softcap("paged_decode", window, softcap)
    options.scales("paged_decode", k_cache, k_scale, v_scale)
    num_seqs, num_heads, head_dim = q.shape
    _, block_size, num_kv_heads, _ = k_cache.shape
    if num_seqs == 0:
        return torch.empty_like(q)
    most_tokens = min(block_tables.shape[1] * block_size, window or NO_WINDOW)
    tile = padded(num_heads // num_kv_heads), padded(head_dim)
    plan = decode_plan.plan(num_seqs, num_kv_heads, *tile, k_cache.element_size(), most_tokens)
    if tokens_per_tile is not None:
        plan = plan._replace(tile_tokens=tokens_per_tile, num_splits=1)

    out = torch.empty(q.shape, dtype=out_dtype(q), device=q.device)
    partial, lse = out, None
    if plan.num_splits > 1:
        partial = torch.empty((num_seqs, plan.num_splits, num_heads, head_dim), dtype=torch.float32, device=q.device)
        lse = torch.empty(partial.shape[:3], dtype=torch.float32, device=q.device)
    launch_decode(
        *(partial, lse, q, k_cache, v_cache, block_tables, seq_lens),
        *(scale, window, softcap, k_scale, v_scale, plan),
        mask_all=tokens_per_tile is not None,
    )
    if lse is not None:
        combine_splits(out, partial, lse)
    return out.to(q.dtype)
