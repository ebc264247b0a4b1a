"""One tile of `prefill_kernel.py`: fetch keys and values slot by slot, wherever their blocks lie, and take them in."""

# Triton kernels are untyped by nature; the launchers are not.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl

from kernels.decode.tile import load
from kernels.prefill.tile import take_tile


@triton.jit
def attend_slots(
    acc,
    running_max,
    running_sum,
    query,
    score_scale,
    softcap_log2e,
    tile,  # number of the tile in the sequence
    lane,  # [TILE_LANES]
    mine,  # [TILE_LANES] whether any query of the piece sees the token; not looked at unless MASKED
    seen,  # [TILE_ROWS, TILE_LANES] which query sees which token; not looked at unless MASKED
    table,
    keys,
    values,
    k_scale,
    v_scale,
    real_dim,
    stride_tb,
    stride_kb: tl.constexpr,
    stride_kt: tl.constexpr,
    stride_vb: tl.constexpr,
    stride_vt: tl.constexpr,
    stride_ksb,
    stride_kst,
    stride_vsb,
    stride_vst,
    TILE_TOKENS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    SOFTCAP: tl.constexpr,
    PLAIN: tl.constexpr,
    MASKED: tl.constexpr,
):
    if TILE_TOKENS % BLOCK_SIZE == 0:
        # Offsets that are those of every tile leave the loop, and with them most of the address arithmetic.
        column, offset = tile * (TILE_TOKENS // BLOCK_SIZE) + lane // BLOCK_SIZE, lane % BLOCK_SIZE
    else:
        token = tile * TILE_TOKENS + lane
        column, offset = token // BLOCK_SIZE, token % BLOCK_SIZE
    offset = offset.to(tl.int64)
    # A lane without a token of ours reads no table entry: the row may end here, or hold anything.
    block = load(table + column.to(tl.int64) * stride_tb, mine, MASKED).to(tl.int64)
    # Neither K nor V is read from a slot that is not ours: zero times the NaN that may lie there would be NaN.
    real = mine[:, None] & real_dim
    key = load(keys + (offset * stride_kt)[:, None] + (block * stride_kb)[:, None], real, MASKED or PADDED)
    if k_scale is not None:
        k_scale = load(k_scale + block * stride_ksb + offset * stride_kst, mine, MASKED)
    if v_scale is not None:
        v_scale = load(v_scale + block * stride_vsb + offset * stride_vst, mine, MASKED)
    dots = tl.dot(query, tl.trans(key.to(query.dtype)), input_precision="ieee")
    value = load(values + (offset * stride_vt)[:, None] + (block * stride_vb)[:, None], real, MASKED or PADDED)
    return take_tile(
        acc,
        running_max,
        running_sum,
        dots,
        value.to(query.dtype),
        score_scale,
        softcap_log2e,
        seen,
        k_scale,
        v_scale,
        SOFTCAP,
        PLAIN,
        MASKED,
    )
