"""Pack scattered blocks side by side, and put them back: what spilling to host memory and reloading do.

    gather: packed[i] = cache[blocks[i]]        scatter: cache[blocks[i]] = packed[i]

Bytes moved per token of a block: 2 (read and write) * num_kv_heads * head_dim * size of an element, for K and V each.
"""

# Triton kernels are untyped by nature; the launchers are not.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl
from torch import Tensor

from kernels import check_moves, launch
from kernels.checks import Blocks
from kernels.copy_blocks import tile_of, tiles_in_block


@triton.jit
def gather_blocks_kernel(
    cache,  # [num_blocks, block_size, num_kv_heads, head_dim]
    packed,  # [num_packed, block_size, num_kv_heads, head_dim]
    blocks,  # [num_packed]
    stride_cb,
    stride_ct,
    stride_ch,
    stride_cd,
    stride_pb,
    stride_pt,
    stride_ph,
    stride_pd,
    BLOCK_SIZE: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_DIM: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    block = tl.load(blocks + i).to(tl.int64)
    # A row is one head of one token.
    row = (tl.program_id(1) * TILE_ROWS + tl.arange(0, TILE_ROWS)).to(tl.int64)[:, None]
    token = row // NUM_KV_HEADS
    head = row % NUM_KV_HEADS
    dim = tl.arange(0, TILE_DIM).to(tl.int64)[None, :]
    real = (token < BLOCK_SIZE) & (dim < HEAD_DIM)

    scattered = cache + block * stride_cb + token * stride_ct + head * stride_ch + dim * stride_cd
    side_by_side = packed + i * stride_pb + token * stride_pt + head * stride_ph + dim * stride_pd
    tl.store(side_by_side, tl.load(scattered, mask=real), mask=real)


@triton.jit
def scatter_blocks_kernel(
    cache,  # [num_blocks, block_size, num_kv_heads, head_dim]
    packed,  # [num_packed, block_size, num_kv_heads, head_dim]
    blocks,  # [num_packed]
    stride_cb,
    stride_ct,
    stride_ch,
    stride_cd,
    stride_pb,
    stride_pt,
    stride_ph,
    stride_pd,
    BLOCK_SIZE: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_DIM: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    block = tl.load(blocks + i).to(tl.int64)
    row = (tl.program_id(1) * TILE_ROWS + tl.arange(0, TILE_ROWS)).to(tl.int64)[:, None]
    token = row // NUM_KV_HEADS
    head = row % NUM_KV_HEADS
    dim = tl.arange(0, TILE_DIM).to(tl.int64)[None, :]
    real = (token < BLOCK_SIZE) & (dim < HEAD_DIM)

    scattered = cache + block * stride_cb + token * stride_ct + head * stride_ch + dim * stride_cd
    side_by_side = packed + i * stride_pb + token * stride_pt + head * stride_ph + dim * stride_pd
    tl.store(scattered, tl.load(side_by_side, mask=real), mask=real)


def gather_blocks(cache: Tensor, blocks: Blocks, out: Tensor | None = None) -> Tensor:
    """Pack the named blocks side by side, bit for bit, so that one transfer can take them to host memory.

    cache [num_blocks, block_size, num_kv_heads, head_dim], any strides, float32, float16 or bfloat16. blocks: a list or
    int32/int64 tensor [num_packed]; a block may be named twice. `out`, if given, is changed in place: of the shape
    below and the cache's dtype and device. Returns `out`, or a new tensor, [num_packed, block_size, num_kv_heads,
    head_dim]. Raises ValueError on shapes, dtypes, devices or ids that do not fit; ids that lie on a GPU are trusted.

    Example: blocks=[7, 2] -> out[0] is block 7, out[1] is block 2.
    """
    ids, out = check_moves.gather_blocks(cache, blocks, out)
    if len(ids):
        tile = tile_of(cache)
        with launch.launching(cache):
            gather_blocks_kernel[len(ids), tiles_in_block(tile)](
                cache, out, ids, *cache.stride(), *out.stride(), **tile
            )
    return out


def scatter_blocks(cache: Tensor, blocks: Blocks, values: Tensor) -> None:
    """Put packed blocks back into the named blocks of the cache, bit for bit: the way back from `gather_blocks`.

    cache [num_blocks, block_size, num_kv_heads, head_dim], any strides, float32, float16 or bfloat16; changed in place,
    in the named blocks only. blocks: a list or int32/int64 tensor [num_packed], each block once. values [num_packed,
    block_size, num_kv_heads, head_dim], of the cache's dtype and device. Raises ValueError on shapes, dtypes, devices
    or ids that do not fit, and on a block named twice; ids that lie on a GPU are trusted.

    Example: blocks=[7, 2] -> block 7 becomes values[0], block 2 becomes values[1].
    """
    ids = check_moves.scatter_blocks(cache, blocks, values)
    if len(ids):
        tile = tile_of(cache)
        with launch.launching(cache):
            scatter_blocks_kernel[len(ids), tiles_in_block(tile)](
                cache, values, ids, *cache.stride(), *values.stride(), **tile
            )
