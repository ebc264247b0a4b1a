"""Numbers of 8 bits in plain torch: how caches that keep them are written and read."""

import torch
from torch import Tensor

# What 8-bit numbers reach. int8 leaves -128 out, so that a number and its negative are kept alike.
LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}


def dequantized(cache: Tensor, scale: Tensor | None, block: int) -> Tensor:
    """Return a block of a cache in float32, [block_size, num_kv_heads, head_dim], each number times its scale.

    `scale` is float32 [num_kv_heads] or [num_blocks, block_size, num_kv_heads], or None for 1.
    """
    if scale is None:
        return cache[block].float()
    return cache[block].float() * (scale if scale.ndim == 1 else scale[block])[..., None]


def quantized(x: Tensor, dtype: torch.dtype, scale: Tensor | None) -> Tensor:
    """Return x [..., head_dim] / scale [...] as 8-bit numbers: to nearest even, saturating. A NaN is 0 in int8."""
    x = x.float() if scale is None else x.float() / scale[..., None]
    # One NaN for all: casts keep its sign, and not every division does.
    x = x.nan_to_num(nan=0.0 if dtype == torch.int8 else float("nan")).clamp(-LARGEST[dtype], LARGEST[dtype])
    return (x.round() if dtype == torch.int8 else x).to(dtype)


def scale_of(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the scale [...] under which the largest number of x [..., head_dim] is the dtype's; 1 for zeros."""
    largest = torch.where(x.isnan(), torch.inf, x.float().abs()).amax(-1)
    # Divided by a tensor: where the divisor is a number, a GPU multiplies by its reciprocal.
    scale = largest / torch.full_like(largest, LARGEST[dtype])
    return torch.where(scale >= torch.finfo(torch.float32).tiny, scale, 1.0)
