"""Write the keys and values of new tokens into their slots.

    cache[slot // block_size, slot % block_size] = kv[token]

Bytes moved per token: 2 (K and V) * 2 (read and write) * num_kv_heads * head_dim * size of an element.
"""

# Triton kernels are untyped by nature; the launchers are not.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl
from torch import Tensor

from kernels import check_moves, launch


@triton.jit
def store_kv_kernel(
    k,  # [num_tokens, num_kv_heads, head_dim]
    v,  # [num_tokens, num_kv_heads, head_dim]
    k_cache,  # [num_blocks, block_size, num_kv_heads, head_dim]
    v_cache,  # [num_blocks, block_size, num_kv_heads, head_dim]
    slot_mapping,  # [num_tokens]
    stride_kt,
    stride_kh,
    stride_kd,
    stride_vt,
    stride_vh,
    stride_vd,
    stride_kcb,
    stride_kct,
    stride_kch,
    stride_kcd,
    stride_vcb,
    stride_vct,
    stride_vch,
    stride_vcd,
    num_tokens,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_DIM: tl.constexpr,
):
    # A row is one head of one token. Offsets are int64: an id times a stride passes 2^31 elements in any large pool.
    row = tl.program_id(0).to(tl.int64) * TILE_ROWS + tl.arange(0, TILE_ROWS)[:, None]
    token = row // NUM_KV_HEADS
    head = row % NUM_KV_HEADS
    dim = tl.arange(0, TILE_DIM).to(tl.int64)[None, :]

    # Padding tokens carry slot -1, belong nowhere and are not written; nor are the rows after the last token.
    slot = tl.load(slot_mapping + token, mask=token < num_tokens, other=-1).to(tl.int64)
    block = slot // BLOCK_SIZE
    offset = slot % BLOCK_SIZE
    real = (slot >= 0) & (dim < HEAD_DIM)

    key = tl.load(k + token * stride_kt + head * stride_kh + dim * stride_kd, mask=real)
    to = block * stride_kcb + offset * stride_kct + head * stride_kch + dim * stride_kcd
    tl.store(k_cache + to, key, mask=real)

    value = tl.load(v + token * stride_vt + head * stride_vh + dim * stride_vd, mask=real)
    to = block * stride_vcb + offset * stride_vct + head * stride_vch + dim * stride_vcd
    tl.store(v_cache + to, value, mask=real)


def store_kv(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slot_mapping: Tensor) -> None:
    """Write each new token's key and value into the slot that the block manager gave it.

    k, v [num_tokens, num_kv_heads, head_dim], any strides, of the caches' dtype (float32, float16, bfloat16).
    k_cache, v_cache [num_blocks, block_size, num_kv_heads, head_dim], any strides; changed in place, in those slots.
    slot_mapping [num_tokens] int32 or int64: slot = block * block_size + offset in the block. A negative slot (-1) is
    skipped; a slot named twice holds one of the two tokens. Raises ValueError on shapes, dtypes or devices that do not
    fit, and on the CPU on slots outside the cache; a GPU's slots are trusted, as reading them would wait for it.

    Example: block_table=[7, 2], position=5, block_size=4 -> block 2, offset 1 -> slot 2 * 4 + 1 = 9.
    Source: vLLM's reshape_and_cache (Kwon et al., arXiv 2309.06180).
    """
    check_moves.store_kv(k, v, k_cache, v_cache, slot_mapping)
    num_tokens, num_kv_heads, head_dim = k.shape
    if num_tokens == 0:
        return
    tile_dim = triton.next_power_of_2(head_dim)
    # 1024 elements a program: a token of eight heads of 128, or a whole lesson at once.
    tile_rows = max(1, 1024 // tile_dim)
    with launch.launching(k_cache):
        store_kv_kernel[(triton.cdiv(num_tokens * num_kv_heads, tile_rows),)](
            k,
            v,
            k_cache,
            v_cache,
            slot_mapping.contiguous(),
            *k.stride(),
            *v.stride(),
            *k_cache.stride(),
            *v_cache.stride(),
            num_tokens,
            NUM_KV_HEADS=num_kv_heads,
            HEAD_DIM=head_dim,
            BLOCK_SIZE=k_cache.shape[1],
            TILE_ROWS=tile_rows,
            TILE_DIM=tile_dim,
        )
