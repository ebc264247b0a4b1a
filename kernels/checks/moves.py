"""What the calls that move data refuse: storing tokens, copying, gathering and scattering blocks."""

import torch
from torch import Tensor

from kernels.checks import arguments, options
from kernels.checks.arguments import INTEGERS, Blocks


def store_kv(
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slot_mapping: Tensor,
    k_scale: Tensor | None,
    v_scale: Tensor | None,
) -> None:
    """Refuse what `store_kv` cannot store."""
    call = "store_kv"
    arguments.caches(call, k_cache, v_cache)
    if k_cache.dtype in arguments.EIGHT_BITS:
        arguments.tensors(call, eight_bits_too=True, k_cache=k_cache, v_cache=v_cache)
        if k.device != k_cache.device:
            raise ValueError(f"{call}: k is on {k.device} and k_cache on {k_cache.device}; they must be on one device")
        arguments.tensors(call, k=k, v=v)
    else:
        arguments.tensors(call, k_cache=k_cache, v_cache=v_cache, k=k, v=v)
        if k_scale is not None or v_scale is not None:
            raise ValueError(
                f"{call}: k_scale or v_scale is given and k_cache is {k_cache.dtype}; only 8 bits have scales"
            )
    options.scales(call, k_cache, k_scale, v_scale)
    num_blocks, block_size, *token_shape = k_cache.shape
    for name, tensor in (("k", k), ("v", v)):
        if tensor.ndim != 3 or list(tensor.shape[1:]) != token_shape or len(tensor) != len(k):
            raise ValueError(
                f"{call}: {name} is {list(tensor.shape)}; with k {list(k.shape)} and a cache {list(k_cache.shape)} "
                f"it must be [num_tokens, {token_shape[0]}, {token_shape[1]}]"
            )
    arguments.indices(
        call, "slot_mapping", slot_mapping, (len(k),), f"[num_tokens] = [{len(k)}], one slot per token", k_cache
    )
    if slot_mapping.device.type == "cpu" and len(k) and int(slot_mapping.max()) >= num_blocks * block_size:
        raise ValueError(
            f"{call}: slot {int(slot_mapping.max())} is outside the cache; {num_blocks} blocks of {block_size} have "
            f"slots 0 to {num_blocks * block_size - 1}"
        )


def blocks(call: str, name: str, ids: Blocks, beside: Tensor) -> Tensor:
    """Return block ids as int64 beside the cache; a list or CPU tensor is checked, a tensor on a GPU is trusted."""
    if isinstance(ids, Tensor):
        if ids.dtype not in INTEGERS or ids.ndim != 1:
            raise ValueError(f"{call}: {name} is {ids.dtype} {list(ids.shape)}; it must be int32 or int64, [any]")
        if ids.is_cuda:
            return ids.to(device=beside.device, dtype=torch.int64).contiguous()
    listed = torch.as_tensor(ids, dtype=torch.int64)
    outside = listed[(listed < 0) | (listed >= len(beside))]
    if len(outside):
        raise ValueError(f"{call}: {name} names blocks {outside.tolist()}; the cache has blocks 0 to {len(beside) - 1}")
    # From pinned memory the copy does not make the CPU wait for the work that its stream still has to do.
    return listed.pin_memory().to(beside.device, non_blocking=True) if beside.is_cuda else listed.contiguous()


def written_once(call: str, name: str, ids: Blocks, read: Blocks = ()) -> None:
    """Refuse to write one block twice, or one that the same call reads: the programs of a kernel run in no order."""
    if isinstance(ids, Tensor) and ids.is_cuda:
        return
    listed = torch.as_tensor(ids, dtype=torch.int64)
    once, times = listed.unique(return_counts=True)  # type: ignore[no-untyped-call]
    twice = once[times > 1].tolist()
    if twice:
        raise ValueError(f"{call}: {name} names blocks {twice} more than once; each can be written once per call")
    if isinstance(read, Tensor) and read.is_cuda:
        return
    both = once[torch.isin(once, torch.as_tensor(read, dtype=torch.int64))].tolist()
    if both:
        raise ValueError(
            f"{call}: blocks {both} are both read and written; copy a chain (a to b, b to c) one call after another"
        )


def copy_blocks(k_cache: Tensor, v_cache: Tensor, sources: Blocks, targets: Blocks) -> tuple[Tensor, Tensor]:
    """Refuse what `copy_blocks` cannot copy; return the ids beside the cache."""
    call = "copy_blocks"
    arguments.caches(call, k_cache, v_cache)
    arguments.tensors(call, eight_bits_too=True, k_cache=k_cache, v_cache=v_cache)
    if len(sources) != len(targets):
        raise ValueError(
            f"{call}: {len(sources)} source_blocks and {len(targets)} target_blocks; there must be as many of each"
        )
    ids = blocks(call, "source_blocks", sources, k_cache), blocks(call, "target_blocks", targets, k_cache)
    written_once(call, "target_blocks", targets, read=sources)
    return ids


def gather_blocks(from_cache: Tensor, ids: Blocks, out: Tensor | None) -> tuple[Tensor, Tensor]:
    """Refuse what `gather_blocks` cannot pack; return the ids beside the cache, and the tensor to pack them into."""
    call = "gather_blocks"
    arguments.cache(call, "cache", from_cache)
    if out is None:
        out = from_cache.new_empty(len(ids), *from_cache.shape[1:])
    packed(call, "out", out, from_cache, ids)
    return blocks(call, "blocks", ids, from_cache), out


def scatter_blocks(to_cache: Tensor, ids: Blocks, values: Tensor) -> Tensor:
    """Refuse what `scatter_blocks` cannot put back; return the ids beside the cache."""
    call = "scatter_blocks"
    arguments.cache(call, "cache", to_cache)
    packed(call, "values", values, to_cache, ids)
    written_once(call, "blocks", ids)
    return blocks(call, "blocks", ids, to_cache)


def packed(call: str, name: str, tensor: Tensor, beside: Tensor, ids: Blocks) -> None:
    """Refuse a tensor that is not the named blocks of the cache side by side."""
    arguments.tensors(call, eight_bits_too=True, cache=beside, **{name: tensor})
    wanted = [len(ids), *beside.shape[1:]]
    if list(tensor.shape) != wanted:
        raise ValueError(f"{call}: {name} is {list(tensor.shape)}; {len(ids)} blocks of this cache are {wanted}")
