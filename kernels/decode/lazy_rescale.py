"""FlashAttention-4's lazy rescale, for one query over one sequence, one block a turn.

The online softmax scales down what it has summed whenever a larger score comes. That is not needed for a right answer,
only against overflow: any maximum m gives out = sum 2^(score - m) v / sum 2^(score - m). So keep an old m while the
largest score is above it by at most `threshold` powers of 2: no weight then passes 2^threshold, and the last division
makes up for the rest.
"""

# Triton kernels are untyped by nature; the launchers are not.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import math

import triton
import triton.language as tl
from torch import Tensor

from kernels import launch
from kernels.reference.lazy_rescale import THRESHOLD, LazyRescale, check
from kernels.sizes import power_of_two


@triton.jit
def lazy_rescale_kernel(
    out,  # [head_dim] float32
    m,  # [turns] float32
    l,  # [turns] float32  # noqa: E741
    rescales,  # [2] int32
    q,  # [head_dim], contiguous
    k_cache,  # [num_blocks, block_size, head_dim]
    v_cache,  # [num_blocks, block_size, head_dim]
    block_table,  # [turns], contiguous
    seq_len,
    score_scale,
    threshold,
    stride_kb,
    stride_kt,
    stride_kd,
    stride_vb,
    stride_vt,
    stride_vd,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE_DIM: tl.constexpr,
    TILE_LANES: tl.constexpr,
):
    dim = tl.arange(0, TILE_DIM).to(tl.int64)
    lane = tl.arange(0, TILE_LANES).to(tl.int64)
    query = tl.load(q + dim, mask=dim < HEAD_DIM, other=0.0).to(tl.float32) * score_scale
    in_use = -float("inf")  # the maximum that the sums are scaled to
    largest = -float("inf")  # the true one
    total = 0.0
    acc = tl.zeros([TILE_DIM], tl.float32)
    done = 0
    skipped = 0
    for turn in range(0, tl.cdiv(seq_len, BLOCK_SIZE)):
        block = tl.load(block_table + turn).to(tl.int64)
        mine = (lane < BLOCK_SIZE) & (turn * BLOCK_SIZE + lane < seq_len)
        real = mine[:, None] & (dim < HEAD_DIM)[None, :]
        at = block * stride_kb + lane[:, None] * stride_kt + dim[None, :] * stride_kd
        key = tl.load(k_cache + at, mask=real, other=0.0).to(tl.float32)
        score = tl.where(mine, tl.sum(key * query[None, :], 1), -float("inf"))
        top = tl.max(score, 0)
        if top > in_use + threshold:
            shrink = tl.exp2(in_use - top)
            acc = acc * shrink
            total = total * shrink
            in_use = top
            # The first turn has nothing to scale down.
            if turn > 0:
                done += 1
        elif top > largest:
            skipped += 1
        largest = tl.maximum(largest, top)

        weight = tl.exp2(score - in_use)
        total += tl.sum(weight, 0)
        at = block * stride_vb + lane[:, None] * stride_vt + dim[None, :] * stride_vd
        value = tl.load(v_cache + at, mask=real, other=0.0).to(tl.float32)
        acc += tl.sum(weight[:, None] * value, 0)
        tl.store(m + turn, in_use)
        tl.store(l + turn, total)
    tl.store(out + dim, acc / total, mask=dim < HEAD_DIM)
    tl.store(rescales, done)
    tl.store(rescales + 1, skipped)


def lazy_rescale(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_len: int,
    scale: float | None = None,
    *,
    threshold: float = THRESHOLD,
) -> LazyRescale:
    """Attend from one query to `seq_len` keys and values in blocks, and rescale only when it must be.

    q [head_dim]; k_cache, v_cache [num_blocks, block_size, head_dim] of one KV head, any strides, all of one float
    dtype; block_table [max_blocks] int32 or int64. `scale` is 1 / sqrt(head_dim) unless given; `threshold` counts
    powers of 2, and 0 rescales whenever the maximum grows. Returns a `LazyRescale`, whose docstring gives the shapes.
    Raises ValueError on shapes, dtypes, devices and lengths that do not fit, and on the CPU on block ids outside the
    cache.

    Example: block maxima 3, 9, 12 with threshold 8 -> m [3, 3, 12]: 9 is kept under 3, one skipped; 12 is 9 above, one
    done. Source: Zadouri et al., FlashAttention-4, 2026.
    """
    check(q, k_cache, v_cache, block_table, seq_len, threshold)
    head_dim, block_size = len(q), k_cache.shape[1]
    found = LazyRescale.unwritten(q, -(-seq_len // block_size))
    score_scale = (head_dim**-0.5 if scale is None else scale) * math.log2(math.e)
    with launch.launching(q):
        lazy_rescale_kernel[(1,)](
            *(found.out, found.m, found.l, found.rescales, q.contiguous(), k_cache, v_cache, block_table.contiguous()),
            *(seq_len, score_scale, float(threshold), *k_cache.stride(), *v_cache.stride()),
            HEAD_DIM=head_dim,
            BLOCK_SIZE=block_size,
            TILE_DIM=power_of_two(head_dim),
            TILE_LANES=power_of_two(block_size),
        )
    return found._replace(out=found.out.to(q.dtype))
