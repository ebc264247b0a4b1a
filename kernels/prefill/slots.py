"""One tile of `kernel.py`: fetch keys and values slot by slot, wherever their blocks lie, and take them in."""

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
    table,  # Table that starts at this sequence's row
    keys,  # Cache of this KV head: it starts at [1, TILE_DIM] pointers
    values,  # Cache of this KV head, likewise
    k_scale,  # Scale of this KV head
    v_scale,  # Scale of this KV head
    real_dim,  # [1, TILE_DIM]
    TILE_TOKENS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    SOFTCAP: tl.constexpr,
    PLAIN: tl.constexpr,
    MASKED: tl.constexpr,
):
    if TILE_TOKENS % BLOCK_SIZE == 0:
        # Every tile has the same offsets, so the compiler computes them, and most of the addresses, before the loop.
        column, offset = tile * (TILE_TOKENS // BLOCK_SIZE) + lane // BLOCK_SIZE, lane % BLOCK_SIZE
    else:
        token = tile * TILE_TOKENS + lane
        column, offset = token // BLOCK_SIZE, token % BLOCK_SIZE
    offset = offset.to(tl.int64)
    # A lane without a token of ours reads no table entry: the row may end here, or hold anything.
    block = load(table.start + column.to(tl.int64) * table.column, mine, MASKED).to(tl.int64)
    # K and V are read only from slots of the sequence: NaN may lie in the others, and zero times NaN is NaN.
    real = mine[:, None] & real_dim
    at = (offset * keys.offset)[:, None] + (block * keys.block)[:, None]
    key = load(keys.start + at, real, MASKED or PADDED)
    by_key, by_value = k_scale.by_slot, v_scale.by_slot
    if by_key is not None:
        by_key = load(by_key + block * k_scale.block + offset * k_scale.offset, mine, MASKED)
    if by_value is not None:
        by_value = load(by_value + block * v_scale.block + offset * v_scale.offset, mine, MASKED)
    dots = tl.dot(query, tl.trans(key.to(query.dtype)), input_precision="ieee")
    value = load(
        values.start + (offset * values.offset)[:, None] + (block * values.block)[:, None], real, MASKED or PADDED
    )
    return take_tile(
        acc,
        running_max,
        running_sum,
        dots,
        value.to(query.dtype),
        score_scale,
        softcap_log2e,
        seen,
        by_key,
        by_value,
        SOFTCAP,
        PLAIN,
        MASKED,
    )
