"""Copy whole blocks inside the cache: what copy-on-write does when a sequence writes to a block that it shares.

    cache[target] = cache[source], for K and for V

Bytes moved per token of a block: 2 (K and V) * 2 (read and write) * num_kv_heads * head_dim * size of an element.
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
def copy_blocks_kernel(
    k_cache,  # [num_blocks, OUTER, INNER, RUN]
    v_cache,  # [num_blocks, OUTER, INNER, RUN]
    source_blocks,  # [num_pairs]
    target_blocks,  # [num_pairs]
    stride_kb,
    stride_ko,
    stride_ki,
    stride_kr,
    stride_vb,
    stride_vo,
    stride_vi,
    stride_vr,
    num_rows,
    OUTER: tl.constexpr,
    INNER: tl.constexpr,
    RUN: tl.constexpr,
    STEP: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_RUN: tl.constexpr,
):
    row, column, real = tile_of(num_rows, RUN, TILE_ROWS, TILE_RUN)
    pair = row // (OUTER * INNER)
    source = tl.load(source_blocks + pair, mask=row < num_rows, other=0)
    target = tl.load(target_blocks + pair, mask=row < num_rows, other=0)

    # Both loads before the stores: twice the bytes under way.
    at = offset_of(source, row, column, stride_kb, stride_ko, stride_ki, stride_kr, OUTER, INNER, STEP)
    key = tl.load(k_cache + at, mask=real)
    at = offset_of(source, row, column, stride_vb, stride_vo, stride_vi, stride_vr, OUTER, INNER, STEP)
    value = tl.load(v_cache + at, mask=real)

    at = offset_of(target, row, column, stride_kb, stride_ko, stride_ki, stride_kr, OUTER, INNER, STEP)
    tl.store(k_cache + at, key, mask=real)
    at = offset_of(target, row, column, stride_vb, stride_vo, stride_vi, stride_vr, OUTER, INNER, STEP)
    tl.store(v_cache + at, value, mask=real)


def copy_blocks(k_cache: Tensor, v_cache: Tensor, source_blocks: Blocks, target_blocks: Blocks) -> None:
    """Copy block source_blocks[i] over block target_blocks[i], K and V, bit for bit.

    k_cache, v_cache [num_blocks, block_size, num_kv_heads, head_dim], any strides, float32, float16, bfloat16 or
    8-bit; changed in place, in the target blocks only. Scales per slot go the same way, as k_scale[..., None] and
    v_scale[..., None]. source_blocks, target_blocks: equally long lists or int32/int64 tensors [num_pairs]; one source
    may serve many targets, and empty ones copy nothing.

    The pairs are copied in no order, so a target may be named once and may not be a source as well: a chain (a to b,
    then b to c) is two calls. Raises ValueError for that, for ids outside the cache, and for shapes, dtypes or devices
    that do not fit. Ids that lie on a GPU are trusted instead, as reading them would wait for it.

    Example: source_blocks=[3, 3], target_blocks=[5, 8] -> blocks 3, 5 and 8 are alike.
    Source: Kwon et al., section 4.4, arXiv 2309.06180.
    """
    sources, targets = check.copy_blocks(k_cache, v_cache, source_blocks, target_blocks)
    if len(sources) == 0:
        return
    rows = rows_of(k_cache, v_cache)
    with launch.launching(k_cache):
        copy_blocks_kernel[rows.grid(len(sources))](
            *rows.views,
            sources,
            targets,
            *rows.strides[0],
            *rows.strides[1],
            rows.num_rows(len(sources)),
            **rows.constants,
        )
