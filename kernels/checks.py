"""What every call refuses, in one place: a ValueError that names the call, the value and what would be right.

Values inside a tensor (block ids, lengths, slots) are checked on the CPU only: reading them from a GPU would stop it.
"""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from kernels import launch

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
EIGHT_BITS = (torch.int8, torch.float8_e4m3fn, torch.float8_e5m2)
INTEGERS = (torch.int32, torch.int64)
Blocks = Sequence[int] | Tensor


def tensors(call: str, **named: Tensor) -> None:
    """Refuse a tensor that has another dtype or device than the first, or that the backend cannot reach."""
    first_name, first = next(iter(named.items()))
    if first.dtype not in FLOATS:
        raise ValueError(f"{call}: {first_name} is {first.dtype}; it must be float32, float16 or bfloat16")
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


def store_kv(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slot_mapping: Tensor) -> None:
    """Refuse what `store_kv` cannot store."""
    call = "store_kv"
    caches(call, k_cache, v_cache)
    tensors(call, k_cache=k_cache, v_cache=v_cache, k=k, v=v)
    num_blocks, block_size, *token_shape = k_cache.shape
    for name, tensor in (("k", k), ("v", v)):
        if tensor.ndim != 3 or list(tensor.shape[1:]) != token_shape or len(tensor) != len(k):
            raise ValueError(
                f"{call}: {name} is {list(tensor.shape)}; with k {list(k.shape)} and a cache {list(k_cache.shape)} "
                f"it must be [num_tokens, {token_shape[0]}, {token_shape[1]}]"
            )
    indices(call, "slot_mapping", slot_mapping, (len(k),), f"[num_tokens] = [{len(k)}], one slot per token", k_cache)
    if slot_mapping.device.type == "cpu" and len(k) and int(slot_mapping.max()) >= num_blocks * block_size:
        raise ValueError(
            f"{call}: slot {int(slot_mapping.max())} is outside the cache; {num_blocks} blocks of {block_size} have "
            f"slots 0 to {num_blocks * block_size - 1}"
        )


def paged_decode(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_tables: Tensor, seq_lens: Tensor, tokens_per_tile: int | None
) -> None:
    """Refuse what `paged_decode` cannot attend to."""
    call = "paged_decode"
    caches(call, k_cache, v_cache)
    if k_cache.dtype in EIGHT_BITS:
        eight_bits(call, q, k_cache=k_cache, v_cache=v_cache)
    else:
        tensors(call, k_cache=k_cache, v_cache=v_cache, q=q)
    num_blocks, block_size, num_kv_heads, head_dim = k_cache.shape
    if q.ndim != 3 or q.shape[2] != head_dim:
        raise ValueError(f"{call}: q is {list(q.shape)}; it must be [num_seqs, num_heads, {head_dim}]")
    if q.shape[1] == 0 or q.shape[1] % num_kv_heads:
        raise ValueError(
            f"{call}: q has {q.shape[1]} heads and the cache {num_kv_heads} KV heads; "
            f"the query heads must be a multiple of the KV heads"
        )
    if tokens_per_tile is not None and tokens_per_tile < 1:
        raise ValueError(f"{call}: tokens_per_tile is {tokens_per_tile}; it must be at least 1, or None")
    num_seqs = len(q)
    indices(call, "block_tables", block_tables, (num_seqs, -1), f"[num_seqs, max_blocks] = [{num_seqs}, any]", k_cache)
    indices(call, "seq_lens", seq_lens, (num_seqs,), f"[num_seqs] = [{num_seqs}]", k_cache)
    if seq_lens.device.type == "cpu" and num_seqs:
        table_tokens = block_tables.shape[1] * block_size
        if int(seq_lens.max()) > table_tokens:
            raise ValueError(
                f"{call}: a sequence of {int(seq_lens.max())} tokens does not fit its row of block_tables, "
                f"{block_tables.shape[1]} blocks of {block_size} that hold {table_tokens}"
            )
        first_token = torch.arange(block_tables.shape[1]) * block_size
        owned = block_tables[first_token < seq_lens[:, None]]
        if bool(((owned < 0) | (owned >= num_blocks)).any()):
            raise ValueError(
                f"{call}: block_tables names blocks {sorted(set(owned.tolist()))}; "
                f"the cache has blocks 0 to {num_blocks - 1}"
            )


def blocks(call: str, name: str, ids: Blocks, beside: Tensor) -> Tensor:
    """Return block ids as int64 beside the cache; a list or CPU tensor is checked, a tensor on a GPU is trusted."""
    if isinstance(ids, Tensor):
        if ids.dtype not in INTEGERS or ids.ndim != 1:
            raise ValueError(f"{call}: {name} is {ids.dtype} {list(ids.shape)}; it must be int32 or int64, [any]")
        if ids.is_cuda:
            return ids.to(device=beside.device, dtype=torch.int64)
    listed = [int(block) for block in ids]
    outside = [block for block in listed if not 0 <= block < len(beside)]
    if outside:
        raise ValueError(f"{call}: {name} names blocks {outside}; the cache has blocks 0 to {len(beside) - 1}")
    return torch.tensor(listed, dtype=torch.int64, device=beside.device)


def written_once(call: str, name: str, ids: Blocks, read: Blocks = ()) -> None:
    """Refuse to write one block twice, or one that the same call reads: the programs of a kernel run in no order."""
    if isinstance(ids, Tensor) and ids.is_cuda:
        return
    times = Counter(int(block) for block in ids)
    twice = sorted(block for block, count in times.items() if count > 1)
    if twice:
        raise ValueError(f"{call}: {name} names blocks {twice} more than once; each can be written once per call")
    both = [] if isinstance(read, Tensor) and read.is_cuda else sorted(times.keys() & {int(block) for block in read})
    if both:
        raise ValueError(
            f"{call}: blocks {both} are both read and written; copy a chain (a to b, b to c) one call after another"
        )


def copy_blocks(k_cache: Tensor, v_cache: Tensor, sources: Blocks, targets: Blocks) -> tuple[Tensor, Tensor]:
    """Refuse what `copy_blocks` cannot copy; return the ids beside the cache."""
    call = "copy_blocks"
    caches(call, k_cache, v_cache)
    tensors(call, k_cache=k_cache, v_cache=v_cache)
    if len(sources) != len(targets):
        raise ValueError(
            f"{call}: {len(sources)} source_blocks and {len(targets)} target_blocks; they are pairs, so as many of each"
        )
    ids = blocks(call, "source_blocks", sources, k_cache), blocks(call, "target_blocks", targets, k_cache)
    written_once(call, "target_blocks", targets, read=sources)
    return ids


def gather_blocks(from_cache: Tensor, ids: Blocks, out: Tensor | None) -> tuple[Tensor, Tensor]:
    """Refuse what `gather_blocks` cannot pack; return the ids beside the cache, and the tensor to pack them into."""
    call = "gather_blocks"
    cache(call, "cache", from_cache)
    if out is None:
        out = from_cache.new_empty(len(ids), *from_cache.shape[1:])
    packed(call, "out", out, from_cache, ids)
    return blocks(call, "blocks", ids, from_cache), out


def scatter_blocks(to_cache: Tensor, ids: Blocks, values: Tensor) -> Tensor:
    """Refuse what `scatter_blocks` cannot put back; return the ids beside the cache."""
    call = "scatter_blocks"
    cache(call, "cache", to_cache)
    packed(call, "values", values, to_cache, ids)
    written_once(call, "blocks", ids)
    return blocks(call, "blocks", ids, to_cache)


def packed(call: str, name: str, tensor: Tensor, beside: Tensor, ids: Blocks) -> None:
    """Refuse a tensor that is not the named blocks of the cache side by side."""
    tensors(call, cache=beside, **{name: tensor})
    wanted = [len(ids), *beside.shape[1:]]
    if list(tensor.shape) != wanted:
        raise ValueError(f"{call}: {name} is {list(tensor.shape)}; {len(ids)} blocks of this cache are {wanted}")
