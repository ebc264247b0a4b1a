"""Write the keys and values of new tokens into their slots, as they are or as numbers of 8 bits.

    cache[slot // block_size, slot % block_size] = kv[token]          or          round(kv[token] / scale)

Bytes moved per token: 2 (K and V) * 2 (read and write) * num_kv_heads * head_dim * size of an element.
"""

# Triton kernels are untyped by nature; the launchers are not.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import launch
from kernels.checks import moves as check
from kernels.moves import quantize
from kernels.moves.quantize import scale_of, to_eight_bits
from kernels.reference.eight_bits import LARGEST
from kernels.sizes import cdiv, power_of_two


@triton.jit
def stored(
    x,
    scale,
    real,
    LARGEST: tl.constexpr,
    MANTISSA: tl.constexpr,
    BIAS: tl.constexpr,
    CAST: tl.constexpr,
    WRITES: tl.constexpr,
):
    """Return what a cache keeps of x [rows, dims], given where the scales of the rows lie, or None for 1."""
    if LARGEST is None:
        kept = x
    else:
        x = x.to(tl.float32)
        if scale is not None:
            if WRITES:
                by = scale_of(x, LARGEST)
                tl.store(scale, by, mask=real)
            else:
                by = tl.load(scale, mask=real, other=1.0)
            x = tl.div_rn(x, tl.broadcast_to(by, x.shape))
        kept = to_eight_bits(x, LARGEST, MANTISSA, BIAS, CAST)
    return kept


@triton.jit
def store_kv_kernel(
    k,  # [num_tokens, num_kv_heads, head_dim]
    v,  # [num_tokens, num_kv_heads, head_dim]
    k_cache,  # [num_blocks, block_size, num_kv_heads, head_dim]
    v_cache,  # [num_blocks, block_size, num_kv_heads, head_dim]
    k_scale,  # [num_kv_heads], or [num_blocks, block_size, num_kv_heads] with K_WRITES, or None
    v_scale,  # the same for V, with V_WRITES
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
    stride_ksb,
    stride_kst,
    stride_ksh,
    stride_vsb,
    stride_vst,
    stride_vsh,
    num_tokens,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_DIM: tl.constexpr,
    LARGEST: tl.constexpr,
    MANTISSA: tl.constexpr,
    BIAS: tl.constexpr,
    CAST: tl.constexpr,
    K_WRITES: tl.constexpr,
    V_WRITES: tl.constexpr,
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
    if k_scale is not None:
        k_scale += block * stride_ksb + offset * stride_kst + head * stride_ksh
    if v_scale is not None:
        v_scale += block * stride_vsb + offset * stride_vst + head * stride_vsh

    # Both loads before the stores: twice the bytes under way.
    key = tl.load(k + token * stride_kt + head * stride_kh + dim * stride_kd, mask=real, other=0.0)
    value = tl.load(v + token * stride_vt + head * stride_vh + dim * stride_vd, mask=real, other=0.0)
    to = block * stride_kcb + offset * stride_kct + head * stride_kch + dim * stride_kcd
    tl.store(k_cache + to, stored(key, k_scale, slot >= 0, LARGEST, MANTISSA, BIAS, CAST, K_WRITES), mask=real)
    to = block * stride_vcb + offset * stride_vct + head * stride_vch + dim * stride_vcd
    tl.store(v_cache + to, stored(value, v_scale, slot >= 0, LARGEST, MANTISSA, BIAS, CAST, V_WRITES), mask=real)


def scale_strides(scale: Tensor | None) -> tuple[int, ...]:
    """Strides of a scale by block, offset in it and head; a scale per head is the same in every slot."""
    if scale is None:
        return 0, 0, 0
    return (0, 0, *scale.stride()) if scale.ndim == 1 else scale.stride()


def store_kv(
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slot_mapping: Tensor,
    *,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
) -> None:
    """Write each new token's key and value into the slot that the block manager gave it.

    k, v [num_tokens, num_kv_heads, head_dim], any strides, float32, float16 or bfloat16. k_cache, v_cache [num_blocks,
    block_size, num_kv_heads, head_dim], any strides, of the same dtype or 8-bit; changed in place, in those slots.
    slot_mapping [num_tokens] int32 or int64: slot = block * block_size + offset in the block. A negative slot (-1) is
    skipped. Name a slot once: if two tokens have one slot, it may hold parts of both.

    8-bit caches (int8, float8_e4m3fn, float8_e5m2) keep number / scale, to nearest even: int8 from -127 to 127, float8
    saturating. Scales are float32, as `paged_decode` takes them. `k_scale`, `v_scale` [num_kv_heads] are given, and
    read; [num_blocks, block_size, num_kv_heads], any strides, are changed in place, in those slots: to the largest size
    of the token's numbers in that head, over 127, 448 or 57344; to 1 where all are zero. None is 1 (int8 needs both). A
    NaN stays a NaN in float8; in int8 it is 0, and a scale per slot makes all of its token and head read as NaN.

    Raises ValueError on shapes, dtypes or devices that do not fit, and on the CPU on slots outside the cache; a GPU's
    slots are trusted, as reading them would wait for it.

    Example: block_table=[7, 2], position=5, block_size=4 -> block 2, offset 1 -> slot 2 * 4 + 1 = 9.
    Source: vLLM's reshape_and_cache (Kwon et al., arXiv 2309.06180).
    """
    check.store_kv(k, v, k_cache, v_cache, slot_mapping, k_scale, v_scale)
    num_tokens, num_kv_heads, head_dim = k.shape
    if num_tokens == 0:
        return
    largest, cast = LARGEST.get(k_cache.dtype), quantize.cast_of(k_cache.dtype)
    mantissa, bias = quantize.FORMATS.get(k_cache.dtype, (0, 0))
    if largest is not None:
        k_cache, v_cache = k_cache.view(torch.uint8), v_cache.view(torch.uint8)
    tile_dim = power_of_two(head_dim)
    # 1024 elements a program: a token of eight heads of 128, or a whole lesson at once. Two warps: measured on an H200.
    tile_rows = max(1, 1024 // tile_dim)
    with launch.launching(k_cache):
        store_kv_kernel[(cdiv(num_tokens * num_kv_heads, tile_rows),)](
            k,
            v,
            k_cache,
            v_cache,
            k_scale,
            v_scale,
            slot_mapping.contiguous(),
            *k.stride(),
            *v.stride(),
            *k_cache.stride(),
            *v_cache.stride(),
            *scale_strides(k_scale),
            *scale_strides(v_scale),
            num_tokens,
            NUM_KV_HEADS=num_kv_heads,
            HEAD_DIM=head_dim,
            BLOCK_SIZE=k_cache.shape[1],
            TILE_ROWS=tile_rows,
            TILE_DIM=tile_dim,
            LARGEST=largest,
            MANTISSA=mantissa,
            BIAS=bias,
            CAST=cast,
            K_WRITES=k_scale is not None and k_scale.ndim == 3,
            V_WRITES=v_scale is not None and v_scale.ndim == 3,
            num_warps=2,
        )
