"""Copy whole blocks inside the cache: what copy-on-write does when a sequence writes to a block that it shares.

    cache[target] = cache[source], for K and for V

Bytes moved per token of a block: 2 (K and V) * 2 (read and write) * num_kv_heads * head_dim * size of an element.
"""

# Triton kernels are untyped by nature; the launchers are not.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl
from torch import Tensor

from kernels import check_moves, launch
from kernels.checks import Blocks


@triton.jit
def copy_blocks_kernel(
    k_cache,  # [num_blocks, block_size, num_kv_heads, head_dim]
    v_cache,  # [num_blocks, block_size, num_kv_heads, head_dim]
    source_blocks,  # [num_pairs]
    target_blocks,  # [num_pairs]
    stride_kb,
    stride_kt,
    stride_kh,
    stride_kd,
    stride_vb,
    stride_vt,
    stride_vh,
    stride_vd,
    BLOCK_SIZE: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_DIM: tl.constexpr,
):
    pair = tl.program_id(0)
    source = tl.load(source_blocks + pair).to(tl.int64)
    target = tl.load(target_blocks + pair).to(tl.int64)
    # A row is one head of one token.
    row = (tl.program_id(1) * TILE_ROWS + tl.arange(0, TILE_ROWS)).to(tl.int64)[:, None]
    token = row // NUM_KV_HEADS
    head = row % NUM_KV_HEADS
    dim = tl.arange(0, TILE_DIM).to(tl.int64)[None, :]
    real = (token < BLOCK_SIZE) & (dim < HEAD_DIM)

    inside = token * stride_kt + head * stride_kh + dim * stride_kd
    key = tl.load(k_cache + source * stride_kb + inside, mask=real)
    tl.store(k_cache + target * stride_kb + inside, key, mask=real)

    inside = token * stride_vt + head * stride_vh + dim * stride_vd
    value = tl.load(v_cache + source * stride_vb + inside, mask=real)
    tl.store(v_cache + target * stride_vb + inside, value, mask=real)


def tile_of(cache: Tensor) -> dict[str, int]:
    """Return a kernel's constants for moving blocks of this cache: about 4096 elements a program."""
    _, block_size, num_kv_heads, head_dim = cache.shape
    tile_dim = triton.next_power_of_2(head_dim)
    tile_rows = min(triton.next_power_of_2(block_size * num_kv_heads), max(1, 4096 // tile_dim))
    return {
        "BLOCK_SIZE": block_size,
        "NUM_KV_HEADS": num_kv_heads,
        "HEAD_DIM": head_dim,
        "TILE_ROWS": tile_rows,
        "TILE_DIM": tile_dim,
    }


def tiles_in_block(tile: dict[str, int]) -> int:
    """Return how many programs share one block."""
    return int(triton.cdiv(tile["BLOCK_SIZE"] * tile["NUM_KV_HEADS"], tile["TILE_ROWS"]))


def copy_blocks(k_cache: Tensor, v_cache: Tensor, source_blocks: Blocks, target_blocks: Blocks) -> None:
    """Copy block source_blocks[i] over block target_blocks[i], K and V, bit for bit.

    k_cache, v_cache [num_blocks, block_size, num_kv_heads, head_dim], any strides, float32, float16 or bfloat16;
    changed in place, in the target blocks only. source_blocks, target_blocks: equally long lists or int32/int64 tensors
    [num_pairs]; one source may serve many targets, and empty ones copy nothing.

    The pairs are copied in no order, so a target may be named once and may not be a source as well: a chain (a to b,
    then b to c) is two calls. Raises ValueError for that, for ids outside the cache, and for shapes, dtypes or devices
    that do not fit. Ids that lie on a GPU are trusted instead, as reading them would wait for it.

    Example: source_blocks=[3, 3], target_blocks=[5, 8] -> blocks 3, 5 and 8 are alike.
    Source: Kwon et al., section 4.4, arXiv 2309.06180.
    """
    sources, targets = check_moves.copy_blocks(k_cache, v_cache, source_blocks, target_blocks)
    if len(sources) == 0:
        return
    tile = tile_of(k_cache)
    with launch.launching(k_cache):
        copy_blocks_kernel[len(sources), tiles_in_block(tile)](
            k_cache, v_cache, sources, targets, *k_cache.stride(), *v_cache.stride(), **tile
        )
