"""One step of the online softmax for many queries: take a tile's scores and values into m, l and the accumulator.

    m' = max(m, score)    l' = l * 2^(m - m') + sum 2^(score - m')    acc' = acc * 2^(m - m') + 2^(score - m') V

Unlike a decode step's (`decode/tile.py`), a row may see no token of a tile: causal masks and windows hide whole tiles
from some queries. Without a softcap, scores are scaled inside the exponent, which saves an instruction a score.
"""

# Triton kernels are untyped by nature; the launchers are not.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl


@triton.jit
def take_tile(
    acc,  # [TILE_ROWS, TILE_DIM] float32
    running_max,  # [TILE_ROWS] m in the papers: the largest score so far
    running_sum,  # [TILE_ROWS] l in the papers: the sum of exp2(score - largest)
    dots,  # [TILE_ROWS, TILE_LANES] float32: query times key
    value,  # [TILE_LANES, TILE_DIM]
    score_scale,  # what turns a dot product into a score in powers of 2, or into what softcap bends; a number or a row
    softcap_log2e,
    seen,  # [TILE_ROWS, TILE_LANES] which query sees which token; not looked at unless MASKED
    k_scale,  # [TILE_LANES] or None
    v_scale,  # [TILE_LANES] or None
    SOFTCAP: tl.constexpr,
    PLAIN: tl.constexpr,
    MASKED: tl.constexpr,
):
    if PLAIN and not MASKED:
        # score_scale is not negative: the largest score is the largest dot's.
        new_max = tl.maximum(running_max, tl.max(dots, 1) * score_scale)
        weight = tl.exp2(dots * score_scale - new_max[:, None])
        shrink = tl.exp2(running_max - new_max)
    else:
        score = dots * score_scale
        if k_scale is not None:
            score = score * k_scale[None, :]
        if SOFTCAP:
            # tanh, spelt so that neither end overflows into inf / inf: 1 - 2 / (1 + inf) = 1.
            score = softcap_log2e * (1.0 - 2.0 / (1.0 + tl.exp2(score)))
        if MASKED:
            score = tl.where(seen, score, -float("inf"))
        new_max = tl.maximum(running_max, tl.max(score, 1))
        # A row that has seen nothing yet keeps -inf, and -inf - -inf would be NaN.
        level = tl.where(new_max == -float("inf"), 0.0, new_max) if MASKED else new_max
        weight = tl.exp2(score - level[:, None])
        shrink = tl.exp2(running_max - level)
    running_sum = running_sum * shrink + tl.sum(weight, 1)
    acc = acc * shrink[:, None]
    if v_scale is not None:
        # The tile's largest scale is set aside, so that half-precision weights neither vanish nor overflow.
        largest = tl.max(tl.abs(v_scale), 0)
        weight = weight * (v_scale / tl.where(largest > 0.0, largest, 1.0))[None, :]
        acc += tl.dot(weight.to(value.dtype), value, input_precision="ieee") * largest
    else:
        acc = tl.dot(weight.to(value.dtype), value, acc, input_precision="ieee")
    return acc, new_max, running_sum
