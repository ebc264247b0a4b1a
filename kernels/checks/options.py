"""What the calls that attend refuse in their options: windows, softcaps, and the scales of 8-bit caches."""

import torch
from torch import Tensor


def window_and_softcap(call: str, window: int | None, softcap: float | None) -> None:
    """Refuse a window that shows no token and a softcap that is not a positive number."""
    if window is not None and window < 1:
        raise ValueError(f"{call}: window is {window}; it must be at least 1, or None")
    if softcap is not None and not 0 < softcap < float("inf"):
        raise ValueError(f"{call}: softcap is {softcap}; it must be above 0 and finite, or None")


def scales(call: str, k_cache: Tensor, k_scale: Tensor | None, v_scale: Tensor | None) -> None:
    """Refuse scales of another dtype, shape or device than the cache needs, and int8 caches without any."""
    num_blocks, block_size, num_kv_heads, _ = k_cache.shape
    fitting = [num_kv_heads], [num_blocks, block_size, num_kv_heads]
    for name, scale in (("k_scale", k_scale), ("v_scale", v_scale)):
        if scale is None:
            if k_cache.dtype == torch.int8:
                raise ValueError(f"{call}: {name} is None; int8 caches need k_scale and v_scale")
            continue
        if not isinstance(scale, Tensor) or scale.dtype != torch.float32:
            got = scale.dtype if isinstance(scale, Tensor) else type(scale).__name__
            raise ValueError(f"{call}: {name} is {got}; it must be a float32 tensor")
        if list(scale.shape) not in fitting:
            raise ValueError(
                f"{call}: {name} is {list(scale.shape)}; it must be [num_kv_heads] = {fitting[0]} or "
                f"[num_blocks, block_size, num_kv_heads] = {fitting[1]}"
            )
        if scale.device != k_cache.device:
            raise ValueError(f"{call}: {name} is on {scale.device}; it must be on {k_cache.device} like the cache")
