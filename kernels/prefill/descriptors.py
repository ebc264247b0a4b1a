"""A cache as a matrix that the GPU's copy engine (TMA) can cut boxes out of, where its strides allow it.

row = block * rows_per_block + head * rows_per_head + offset    column = head * columns_per_head
"""

from typing import NamedTuple

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels import launch
from kernels.sizes import power_of_two


class Places(NamedTuple):
    """Where in the matrix a block and a head begin."""

    rows_per_block: int
    rows_per_head: int
    columns_per_head: int


class Boxes(NamedTuple):
    """The matrix, and the places in it."""

    matrix: TensorDescriptor
    places: Places


def available() -> bool:
    """Say whether descriptors are fetched by hardware (from Hopper on), or interpreted."""
    return launch.INTERPRETED or (launch.COMPILED and torch.cuda.get_device_capability()[0] >= 9)


def boxes(cache: Tensor, tile_tokens: int) -> Boxes | None:
    """See a cache [num_blocks, block_size, num_kv_heads, head_dim] as a matrix with a token's stride between its rows.

    Its boxes are [tile_tokens, head_dim]. Returns None where a box does not lie inside one block, or where blocks and
    heads are not whole rows or columns apart, or not on 16 bytes, as the hardware wants.

    Example: [100, 64, 8, 128] contiguous -> rows of 8 * 128 numbers, 64 of them a block, heads 128 columns apart.
    """
    num_blocks, block_size, num_kv_heads, head_dim = cache.shape
    stride_b, stride_t, stride_h, stride_d = cache.stride()
    side_by_side = (num_kv_heads - 1) * stride_h + head_dim <= stride_t
    on_16_bytes = all(at % 16 == 0 for at in (cache.data_ptr(), stride_t * cache.itemsize, stride_h * cache.itemsize))
    whole_rows = stride_t > 0 and stride_b % stride_t == 0 and (side_by_side or stride_h % stride_t == 0)
    a_box_fits = block_size % tile_tokens == 0 and head_dim == power_of_two(head_dim)
    if not (whole_rows and a_box_fits and on_16_bytes and stride_d == 1 and num_blocks):
        return None
    per_block, per_head = stride_b // stride_t, 0 if side_by_side else stride_h // stride_t
    columns_per_head = stride_h if side_by_side else 0
    rows = (num_blocks - 1) * per_block + (num_kv_heads - 1) * per_head + block_size
    columns = (num_kv_heads - 1) * columns_per_head + head_dim
    matrix = TensorDescriptor(cache, [rows, columns], [stride_t, 1], [tile_tokens, head_dim])
    return Boxes(matrix, Places(per_block, per_head, columns_per_head)) if rows < 2**31 else None
