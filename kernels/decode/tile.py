"""One step of the online softmax: take a tile of tokens, wherever their blocks lie, into m, l and the accumulator.

    m' = max(m, score)    l' = l * 2^(m - m') + sum 2^(score - m')    acc' = acc * 2^(m - m') + 2^(score - m') V

The decode kernel calls it in its loops. It also returns the block ids that it loaded from and the masked scores, which
`report_turn.py` writes for a lens; in a kernel that does not use them, the compiler removes them.
"""

# Triton kernels are untyped by nature; the launchers are not.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl

from kernels.decode.widen import widen


@triton.jit
def load(pointers, mask, MASKED: tl.constexpr):
    """Load, with zeros where the mask is false; a tile without a false lane does not pay for the mask."""
    return tl.load(pointers, mask=mask, other=0.0) if MASKED else tl.load(pointers)


@triton.jit
def attend_tile(
    acc,  # [TILE_HEADS, TILE_DIM] float32
    running_max,  # [TILE_HEADS] m in the papers: the largest score so far
    running_sum,  # [TILE_HEADS] l in the papers: the sum of exp2(score - largest)
    query,  # [TILE_HEADS, TILE_DIM]
    score_scale,  # [TILE_HEADS] what turns a dot product into a score in powers of 2, or into what softcap bends
    softcap_log2e,
    token,  # [TILE_LANES] positions in the sequence
    mine,  # [TILE_LANES] whether the lane has a token to attend to; not looked at unless MASKED
    table,  # Table that starts at this sequence's row
    keys,  # Cache of this KV head: it starts at [1, TILE_DIM] pointers
    values,  # Cache of this KV head, likewise
    k_scale,  # Scale of this KV head
    v_scale,  # Scale of this KV head
    real_dim,  # [1, TILE_DIM]
    BLOCK_SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    SOFTCAP: tl.constexpr,
    MASKED: tl.constexpr,
):
    # A lane without a token of ours reads no table entry: the row may end here, or hold anything.
    block = load(table.start + (token // BLOCK_SIZE).to(tl.int64) * table.column, mine, MASKED).to(tl.int64)
    offset = (token % BLOCK_SIZE).to(tl.int64)
    # K and V are read only from slots of the sequence: NaN may lie in the others, and zero times NaN is NaN.
    real = mine[:, None] & real_dim

    key = load(keys.start + (block * keys.block + offset * keys.offset)[:, None], real, MASKED or PADDED)
    key = widen(key, query.dtype, IN_PLACE=False)
    score = tl.dot(query, tl.trans(key), input_precision="ieee") * score_scale[:, None]
    if k_scale.by_slot is not None:
        score = score * load(k_scale.by_slot + block * k_scale.block + offset * k_scale.offset, mine, MASKED)[None, :]
    if SOFTCAP:
        # tanh, spelt so that neither end overflows into inf / inf: 1 - 2 / (1 + inf) = 1.
        score = softcap_log2e * (1.0 - 2.0 / (1.0 + tl.exp2(score)))
    if MASKED:
        score = tl.where(mine[None, :], score, -float("inf"))

    new_max = tl.maximum(running_max, tl.max(score, 1))
    weight = tl.exp2(score - new_max[:, None])
    shrink = tl.exp2(running_max - new_max)
    running_sum = running_sum * shrink + tl.sum(weight, 1)
    acc = acc * shrink[:, None]

    value = load(values.start + (block * values.block + offset * values.offset)[:, None], real, MASKED or PADDED)
    value = widen(value, query.dtype, IN_PLACE=True)
    if v_scale.by_slot is not None:
        scale = load(v_scale.by_slot + block * v_scale.block + offset * v_scale.offset, mine, MASKED)
        # The tile's largest scale is set aside, so that half-precision weights neither vanish nor overflow.
        largest = tl.max(tl.abs(scale), 0)
        weight = weight * (scale / tl.where(largest > 0.0, largest, 1.0))[None, :]
        acc += tl.dot(weight.to(query.dtype), value, input_precision="ieee") * largest
    else:
        acc = tl.dot(weight.to(query.dtype), value, acc, input_precision="ieee")
    return acc, new_max, running_sum, block, score
