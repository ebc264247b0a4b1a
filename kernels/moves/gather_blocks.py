"""Pack scattered blocks side by side, and put them back: what spilling to host memory and reloading do.

    gather: packed[i] = cache[blocks[i]]        scatter: cache[blocks[i]] = packed[i]

Bytes moved per token of a block: 2 (read and write) * num_kv_heads * head_dim * size of an element, for K and V each.
"""

# Triton kernels are untyped by nature; the launchers are not.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl
from torch import Tensor

from kernels import launch
from kernels.checks import moves as check
from kernels.checks.arguments import Blocks
from kernels.moves.block_rows import offset_of, rows_of, tile_of


@triton.jit(do_not_specialize=["num_rows"])
def gather_blocks_kernel(
    cache,  # [num_blocks, OUTER, INNER, RUN]
    packed,  # [num_packed, OUTER, INNER, RUN]
    blocks,  # [num_packed]
    stride_cb,
    stride_co,
    stride_ci,
    stride_cr,
    stride_pb,
    stride_po,
    stride_pi,
    stride_pr,
    num_rows,
    OUTER: tl.constexpr,
    INNER: tl.constexpr,
    RUN: tl.constexpr,
    STEP: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_RUN: tl.constexpr,
):
    row, column, real = tile_of(num_rows, RUN, TILE_ROWS, TILE_RUN)
    i = row // (OUTER * INNER)
    block = tl.load(blocks + i, mask=row < num_rows, other=0)
    scattered = offset_of(block, row, column, stride_cb, stride_co, stride_ci, stride_cr, OUTER, INNER, STEP)
    side_by_side = offset_of(i, row, column, stride_pb, stride_po, stride_pi, stride_pr, OUTER, INNER, STEP)
    tl.store(packed + side_by_side, tl.load(cache + scattered, mask=real), mask=real)


@triton.jit(do_not_specialize=["num_rows"])
def scatter_blocks_kernel(
    cache,  # [num_blocks, OUTER, INNER, RUN]
    packed,  # [num_packed, OUTER, INNER, RUN]
    blocks,  # [num_packed]
    stride_cb,
    stride_co,
    stride_ci,
    stride_cr,
    stride_pb,
    stride_po,
    stride_pi,
    stride_pr,
    num_rows,
    OUTER: tl.constexpr,
    INNER: tl.constexpr,
    RUN: tl.constexpr,
    STEP: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_RUN: tl.constexpr,
):
    row, column, real = tile_of(num_rows, RUN, TILE_ROWS, TILE_RUN)
    i = row // (OUTER * INNER)
    block = tl.load(blocks + i, mask=row < num_rows, other=0)
    scattered = offset_of(block, row, column, stride_cb, stride_co, stride_ci, stride_cr, OUTER, INNER, STEP)
    side_by_side = offset_of(i, row, column, stride_pb, stride_po, stride_pi, stride_pr, OUTER, INNER, STEP)
    tl.store(cache + scattered, tl.load(packed + side_by_side, mask=real), mask=real)


def gather_blocks(cache: Tensor, blocks: Blocks, out: Tensor | None = None) -> Tensor:
    """Pack the named blocks side by side, bit for bit, so that one transfer can take them to host memory.

    cache [num_blocks, block_size, num_kv_heads, head_dim], any strides, float32, float16, bfloat16 or 8-bit. blocks: a
    list or int32/int64 tensor [num_packed]; a block may be named twice. `out`, if given, is changed in place: of the
    shape below and the cache's dtype and device. Returns `out`, or a new tensor, [num_packed, block_size, num_kv_heads,
    head_dim]. Raises ValueError on shapes, dtypes, devices or ids that do not fit; ids that lie on a GPU are trusted.

    Example: blocks=[7, 2] -> out[0] is block 7, out[1] is block 2.
    """
    ids, out = check.gather_blocks(cache, blocks, out)
    if len(ids):
        rows = rows_of(cache, out)
        with launch.launching(cache):
            gather_blocks_kernel[rows.grid(len(ids))](
                *rows.views, ids, *rows.strides[0], *rows.strides[1], rows.num_rows(len(ids)), **rows.constants
            )
    return out


def scatter_blocks(cache: Tensor, blocks: Blocks, values: Tensor) -> None:
    """Put packed blocks back into the named blocks of the cache, bit for bit: the way back from `gather_blocks`.

    cache [num_blocks, block_size, num_kv_heads, head_dim], any strides, float32, float16, bfloat16 or 8-bit; changed in
    place, in the named blocks only. blocks: a list or int32/int64 tensor [num_packed], each block once. values
    [num_packed, block_size, num_kv_heads, head_dim], of the cache's dtype and device. Raises ValueError on shapes,
    dtypes, devices or ids that do not fit, and on a block named twice; ids that lie on a GPU are trusted.

    Example: blocks=[7, 2] -> block 7 becomes values[0], block 2 becomes values[1].
    """
    ids = check.scatter_blocks(cache, blocks, values)
    if len(ids):
        rows = rows_of(cache, values)
        with launch.launching(cache):
            scatter_blocks_kernel[rows.grid(len(ids))](
                *rows.views, ids, *rows.strides[0], *rows.strides[1], rows.num_rows(len(ids)), **rows.constants
            )
