"""What a kernel knows of a tensor, as named fields: where it begins, and how far apart its neighbours lie.

A launcher passes a bundle as one argument, and Triton gives the kernel its fields: `keys.block` is how many numbers lie
between a block and the next. Triton compiles a bundle as if its fields had come one by one.
"""

# Triton kernels are untyped by nature; the launchers are not.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from typing import Any, NamedTuple

import triton
import triton.language as tl
from torch import Tensor


class Queries(NamedTuple):
    """q [num_tokens, num_heads, head_dim] with its strides; a decode step has one token a sequence."""

    start: Any
    token: Any
    head: Any
    dim: Any


class Cache(NamedTuple):
    """K or V [num_blocks, block_size, num_kv_heads, head_dim] with its strides; `offset` is one slot on in a block."""

    start: Any
    block: Any
    offset: Any
    head: Any
    dim: Any


class Table(NamedTuple):
    """block_tables [num_seqs, max_blocks] with its strides."""

    start: Any
    seq: Any
    column: Any


class Scale(NamedTuple):
    """What an 8-bit number of K or of V is multiplied by; a field that a cache does not have is None.

    by_head [num_kv_heads] float32, contiguous; or by_slot [num_blocks, block_size, num_kv_heads] float32 with its
    strides.
    """

    by_head: Any
    by_slot: Any
    block: Any
    offset: Any
    head: Any


def scale_bundle(scale: Tensor | None) -> Scale:
    """Bundle a scale as `paged_decode` takes it: [num_kv_heads], [num_blocks, block_size, num_kv_heads], or None."""
    if scale is None:
        return Scale(None, None, 0, 0, 0)
    return Scale(scale.contiguous(), None, 0, 0, 0) if scale.ndim == 1 else Scale(None, scale, *scale.stride())


@triton.jit
def cache_of_kv_head(cache, kv_head, TILE_DIM: tl.constexpr):
    """Return a cache as one KV head sees it: it starts with pointers [1, TILE_DIM] to that head's dims in slot 0."""
    dim = tl.arange(0, TILE_DIM).to(tl.int64)[None, :]
    start = cache.start + kv_head * cache.head + dim * cache.dim
    return Cache(start, cache.block, cache.offset, cache.head, cache.dim)
