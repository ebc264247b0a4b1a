"""Blocks as rows of integers: what the kernels that move whole blocks know of memory before they start.

Moved numbers are bits, so their dtype does not matter: a block is cut into the longest runs that lie side by side in
every tensor of the call, and a run into the widest integers that all addresses allow. A block of a plain cache is one
run, moved 16 bytes a thread and instruction; a view with gaps is several shorter ones, in the same kernels.
"""

# Triton kernels are untyped by nature; the launchers are not.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.sizes import cdiv, power_of_two

INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# Integers a program moves per tensor: 4 KiB of int64, two 16-byte accesses a thread.
TILE = 512


@triton.jit
def tile_of(num_rows, RUN: tl.constexpr, TILE_ROWS: tl.constexpr, TILE_RUN: tl.constexpr):
    """Return this program's rows [TILE_ROWS, 1], its columns [1, TILE_RUN], and which of them there are."""
    TILES: tl.constexpr = (RUN + TILE_RUN - 1) // TILE_RUN
    # Offsets are int64: an id times a stride passes 2^31 in any large pool. Tiles of one run are neighbours.
    row = (tl.program_id(0) // TILES).to(tl.int64) * TILE_ROWS + tl.arange(0, TILE_ROWS)[:, None]
    column = (tl.program_id(0) % TILES).to(tl.int64) * TILE_RUN + tl.arange(0, TILE_RUN)[None, :]
    return row, column, (row < num_rows) & (column < RUN)


@triton.jit
def offset_of(
    block,
    row,
    column,
    stride_block,
    stride_outer,
    stride_inner,
    stride_run,
    OUTER: tl.constexpr,
    INNER: tl.constexpr,
    STEP: tl.constexpr,
):
    """Return where, in a tensor, the columns of these rows lie, each row in the block that `block` names for it."""
    start = block * stride_block + row // INNER % OUTER * stride_outer + row % INNER * stride_inner
    # These strides come divided by STEP, so that the compiler sees at what multiple of it every row starts.
    return start * STEP + column * stride_run


class Rows(NamedTuple):
    """The views that a kernel is given, their strides as it takes them, and its constants."""

    views: list[Tensor]
    strides: list[tuple[int, ...]]
    constants: dict[str, int]

    def num_rows(self, num_blocks: int) -> int:
        """Return how many rows so many blocks have."""
        return num_blocks * self.constants["OUTER"] * self.constants["INNER"]

    def grid(self, num_blocks: int) -> tuple[int]:
        """Return how many programs move so many blocks."""
        tiles = cdiv(self.constants["RUN"], self.constants["TILE_RUN"])
        return (cdiv(self.num_rows(num_blocks), self.constants["TILE_ROWS"]) * tiles,)


def merged(*tensors: Tensor) -> list[tuple[int, list[int]]]:
    """Return three dimensions that cover a block, outermost first: sizes, and strides in each tensor."""
    shape = tensors[0].shape
    inside = [(shape[dim], [x.stride(dim) for x in tensors]) for dim in (1, 2, 3) if shape[dim] > 1]
    inside.sort(key=lambda dimension: dimension[1], reverse=True)
    dimensions: list[tuple[int, list[int]]] = []
    for size, strides in inside or [(1, [1] * len(tensors))]:
        above, above_strides = dimensions[-1] if dimensions else (0, [])
        if above and all(wide == size * narrow for wide, narrow in zip(above_strides, strides, strict=True)):
            dimensions[-1] = above * size, strides
        else:
            dimensions.append((size, strides))
    return [(1, [0] * len(tensors))] * (3 - len(dimensions)) + dimensions


def rows_of(*tensors: Tensor) -> Rows:
    """Cut the blocks of tensors of one shape [any, block_size, num_kv_heads, head_dim] and one dtype into rows.

    Example: bfloat16 [9, 16, 8, 128], contiguous -> one row of 16 * 8 * 128 / 4 int64 a block. With K and V of a token
    side by side, [9, 16, 2, 8, 128], a view of K -> 16 rows of 8 * 128 / 4.
    """
    (outer, outer_strides), (inner, inner_strides), (run, run_strides) = merged(*tensors)
    strides = list(zip([x.stride(0) for x in tensors], outer_strides, inner_strides, run_strides, strict=True))
    size = step = tensors[0].element_size()
    if all(stride == 1 for stride in run_strides):
        apart = [run, *(x.storage_offset() for x in tensors), *(stride for row in strides for stride in row[:3])]
        step = math.gcd(16, *(x.data_ptr() for x in tensors), *(size * elements for elements in apart))
    unit = min(8, step)
    views = [
        x.as_strided((len(x), outer, inner, run), row).view(INTEGER[unit])
        for x, row in zip(tensors, strides, strict=True)
    ]
    run = views[0].shape[3]
    # Tiles that fit the run, unless they would be tiny: then a power of two, and its end is masked.
    fitting = run & -run
    tile_run = min(TILE, fitting if fitting >= TILE // 16 else power_of_two(run))
    constants = {"OUTER": outer, "INNER": inner, "RUN": run, "STEP": step // unit}
    constants |= {"TILE_ROWS": TILE // tile_run, "TILE_RUN": tile_run}
    stepped = [(*(stride * unit // step for stride in view.stride()[:3]), view.stride(3)) for view in views]
    return Rows(views, stepped, constants)
