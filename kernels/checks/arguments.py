"""What every call refuses: a ValueError that names the call, the value and what would be right.

What single calls refuse besides is in `attention.py`, `options.py` and `moves.py`. Values inside a tensor (block ids,
lengths, slots) are checked on the CPU only: reading them from a GPU would make the CPU wait for it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from kernels import launch

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
EIGHT_BITS = (torch.int8, torch.float8_e4m3fn, torch.float8_e5m2)
INTEGERS = (torch.int32, torch.int64)
Blocks = Sequence[int] | Tensor


def tensors(call: str, /, *, eight_bits_too: bool = False, **named: Tensor) -> None:
    """Refuse a tensor that has another dtype or device than the first, or that the backend cannot reach."""
    first_name, first = next(iter(named.items()))
    if first.dtype not in (FLOATS + EIGHT_BITS if eight_bits_too else FLOATS):
        right = "float32, float16, bfloat16, int8 or float8" if eight_bits_too else "float32, float16 or bfloat16"
        raise ValueError(f"{call}: {first_name} is {first.dtype}; it must be {right}")
    if launch.COMPILED and not first.is_cuda:
        raise ValueError(f"{call}: {first_name} is on {first.device}; kernels are compiled here, so it must be on cuda")
    for name, tensor in named.items():
        if tensor.dtype != first.dtype:
            raise ValueError(
                f"{call}: {name} is {tensor.dtype} and {first_name} is {first.dtype}; they must be of one dtype"
            )
        if tensor.device != first.device:
            raise ValueError(
                f"{call}: {name} is on {tensor.device} and {first_name} on {first.device}; they must be on one device"
            )


def eight_bits(call: str, q: Tensor, **caches: Tensor) -> None:
    """Refuse caches of 8-bit numbers of two kinds, or on another device than q, which stays a float."""
    tensors(call, q=q)
    first_name, first = next(iter(caches.items()))
    for name, tensor in caches.items():
        if tensor.dtype != first.dtype:
            raise ValueError(
                f"{call}: {name} is {tensor.dtype} and {first_name} is {first.dtype}; they must be of one dtype"
            )
        if tensor.device != q.device:
            raise ValueError(f"{call}: {name} is on {tensor.device} and q on {q.device}; they must be on one device")


def indices(call: str, name: str, index: Tensor, shape: tuple[int, ...], wanted: str, beside: Tensor) -> None:
    """Refuse an index tensor of another shape, dtype or device than the call needs; -1 in `shape` fits any size."""
    if index.dtype not in INTEGERS:
        raise ValueError(f"{call}: {name} is {index.dtype}; it must be int32 or int64")
    if index.ndim != len(shape) or any(want not in (-1, got) for want, got in zip(shape, index.shape, strict=True)):
        raise ValueError(f"{call}: {name} is {list(index.shape)}; it must be {wanted}")
    if index.device != beside.device:
        raise ValueError(f"{call}: {name} is on {index.device}; it must be on {beside.device} like the cache")


def cache(call: str, name: str, tensor: Tensor) -> None:
    """Refuse a cache that is not [num_blocks, block_size, num_kv_heads, head_dim]."""
    if tensor.ndim != 4 or 0 in tensor.shape[1:]:
        raise ValueError(
            f"{call}: {name} is {list(tensor.shape)}; it must be [num_blocks, block_size, num_kv_heads, head_dim]"
        )


def caches(call: str, k_cache: Tensor, v_cache: Tensor) -> None:
    """Refuse a K and a V cache that do not belong together."""
    cache(call, "k_cache", k_cache)
    if v_cache.shape != k_cache.shape:
        raise ValueError(
            f"{call}: v_cache is {list(v_cache.shape)} and k_cache is {list(k_cache.shape)}; they must be equal"
        )
