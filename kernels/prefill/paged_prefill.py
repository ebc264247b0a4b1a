"""Attention of many new tokens at once to the keys and values that the block tables point at.

The kernels are in `kernel.py` and `descriptor_kernel.py`; what is here chooses how to cut the work, has
it listed (`work.py`) and launches it, and where several programs share a piece, `combine_splits.py` after it.
"""

import functools
import math

import torch
import triton.language as tl
from torch import Tensor

from kernels import launch
from kernels.bundles import Cache, Queries, Table, scale_bundle
from kernels.checks import arguments, attention, options
from kernels.decode.combine_splits import combine_splits
from kernels.decode.launch_decode import NO_WINDOW, TRITON_TYPE, out_dtype
from kernels.prefill import descriptors
from kernels.prefill import plan as prefill_plan
from kernels.prefill.descriptor_kernel import paged_prefill_descriptor_kernel
from kernels.prefill.kernel import paged_prefill_kernel
from kernels.prefill.work import list_pieces
from kernels.sizes import padded


def paged_prefill(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    query_start_loc: Tensor,
    scale: float | None = None,
    *,
    window: int | None = None,
    softcap: float | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    tokens_per_tile: int | None = None,
) -> Tensor:
    """Attend from the newest tokens of each sequence, as many as it brings, each to itself and all tokens before it.

    q [num_tokens, num_heads, head_dim]: the sequences' new tokens one after another, those of sequence i in rows
    query_start_loc[i] to query_start_loc[i + 1]; query_start_loc [num_seqs + 1] int32 or int64, from 0 on, never
    falling. Their keys and values must be stored already, and `seq_lens` counts them: of query_len new tokens, token j
    sees the keys up to and including seq_len - query_len + j. A query that sees no key gives zeros, and so do the rows
    of q after the last sequence's. The other arguments are those of `kernels.paged_decode`: strides, dtypes, the
    entries of block_tables that are never followed, `scale`, `window`, `softcap`, 8-bit caches and their scales, and
    `tokens_per_tile`.

    Returns a new tensor like q. Raises ValueError on shapes, head counts, dtypes or devices that do not fit, and on the
    CPU on block ids outside the cache, lengths past the table, and a query_start_loc that falls or ends after q.

    Example: query_start_loc=[0, 3, 4], seq_lens=[3, 9] -> rows 0 to 2 are a whole prompt of 3, and row 3 a decode step.
    Source: Kwon et al., PagedAttention, arXiv 2309.06180; Dao, FlashAttention-2, arXiv 2307.08691.
    """
    attention.paged_prefill(q, k_cache, v_cache, block_tables, seq_lens, query_start_loc, tokens_per_tile)
    options.window_and_softcap("paged_prefill", window, softcap)
    options.scales("paged_prefill", k_cache, k_scale, v_scale)
    num_tokens, num_heads, head_dim = q.shape
    _, block_size, num_kv_heads, _ = k_cache.shape
    if num_tokens == 0:
        return torch.empty_like(q)
    narrow = k_cache.dtype in arguments.EIGHT_BITS
    # As in paged_decode: torch widens 8-bit caches for the interpreter, which works in float32.
    if launch.INTERPRETED and narrow:
        k_cache, v_cache = k_cache.float(), v_cache.float()
    # float8 turns into float16 in one instruction, into bfloat16 in several.
    dot_dtype = torch.float16 if narrow and out_dtype(q) != torch.float32 else out_dtype(q)

    group = num_heads // num_kv_heads
    tile_dim = padded(head_dim)
    most_keys = min(block_tables.shape[1] * block_size, (window or NO_WINDOW) + num_tokens)
    sizes = tile_dim, k_cache.itemsize, block_size
    plan = prefill_plan.plan(num_tokens, len(seq_lens), num_kv_heads, group, *sizes, most_keys)
    if tokens_per_tile is not None:
        plan = plan._replace(tile_tokens=tokens_per_tile, num_splits=1)

    scale = head_dim**-0.5 if scale is None else scale
    # The largest dot gives the largest score only if the scale is not negative, so its sign goes to the queries.
    q, scale = (q.neg(), -scale) if scale < 0 else (q, scale)
    score_scale = scale * math.log2(math.e) * (2.0 / softcap if softcap else 1.0)
    out = torch.empty(q.shape, dtype=out_dtype(q), device=q.device)
    partial, lse = out, None
    if plan.num_splits > 1:
        partial = torch.empty((num_tokens, plan.num_splits, num_heads, head_dim), dtype=torch.float32, device=q.device)
        lse = torch.empty(partial.shape[:3], dtype=torch.float32, device=q.device)
    pieces = list_pieces(seq_lens.contiguous(), query_start_loc.contiguous(), num_tokens, plan.tile_rows // group)
    grid = (len(pieces) * num_kv_heads, plan.num_splits)
    common = {
        "NUM_HEADS": num_heads,
        "HEADS_PER_KV": group,
        "HEAD_DIM": head_dim,
        "BLOCK_SIZE": block_size,
        "TILE_ROWS": plan.tile_rows,
        "TILE_TOKENS": plan.tile_tokens,
        "DOT_TYPE": TRITON_TYPE[dot_dtype],
        "SOFTCAP": softcap is not None,
        "WINDOW": window is not None,
        "num_warps": plan.num_warps,
        "num_stages": plan.num_stages,
    }
    plain = tokens_per_tile is None and k_scale is None and v_scale is None and k_cache.itemsize == 2
    by_box = plain and descriptors.available()
    bends = (score_scale, (softcap or 0.0) * math.log2(math.e), window or NO_WINDOW)
    boxes = [descriptors.boxes(cache, plan.tile_tokens) if by_box else None for cache in (k_cache, v_cache)]
    table = Table(block_tables, *block_tables.stride())
    with launch.launching(q):
        if boxes[0] is not None and boxes[1] is not None:
            paged_prefill_descriptor_kernel[grid](
                partial,
                lse,
                Queries(q, *q.stride()),
                boxes[0].matrix,
                boxes[1].matrix,
                boxes[0].places,
                boxes[1].places,
                table,
                pieces,
                *bends,
                **common,
            )
        else:
            paged_prefill_kernel[grid](
                partial,
                lse,
                Queries(q, *q.stride()),
                constant_strides(k_cache),
                constant_strides(v_cache),
                table,
                pieces,
                scale_bundle(k_scale),
                scale_bundle(v_scale),
                *bends,
                TILE_DIM=tile_dim,
                TILE_LANES=padded(plan.tile_tokens),
                NARROW_Q=dot_dtype != out_dtype(q),
                MASK_ALL=tokens_per_tile is not None,
                **common,
            )
    if lse is not None:
        combine_splits(out, partial, lse)
    return out.to(q.dtype)


def constant_strides(cache: Tensor) -> Cache:
    """Bundle a cache whose strides of block and offset are compiled in: addresses then cost fewer instructions."""
    block, offset, head, dim = cache.stride()
    return Cache(cache, constant(block), constant(offset), head, dim)


# Triton finds a compiled kernel by its constants, and faster when a number is always the same object.
constant = functools.lru_cache(maxsize=1024)(tl.constexpr)
