"""What the calls that attend refuse; their options are in `options.py`."""

import torch
from torch import Tensor

from kernels.checks import arguments
from kernels.checks.arguments import EIGHT_BITS


def paged_decode(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_tables: Tensor, seq_lens: Tensor, tokens_per_tile: int | None
) -> None:
    """Refuse what `paged_decode` cannot attend to."""
    queries("paged_decode", "num_seqs", q, k_cache, v_cache, tokens_per_tile)
    sequences("paged_decode", len(q), k_cache, block_tables, seq_lens)


def paged_prefill(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    query_start_loc: Tensor,
    tokens_per_tile: int | None,
) -> None:
    """Refuse what `paged_prefill` cannot attend to."""
    call, num_seqs = "paged_prefill", seq_lens.numel()
    queries(call, "num_tokens", q, k_cache, v_cache, tokens_per_tile)
    sequences(call, num_seqs, k_cache, block_tables, seq_lens)
    wanted = f"[num_seqs + 1] = [{num_seqs + 1}]"
    arguments.indices(call, "query_start_loc", query_start_loc, (num_seqs + 1,), wanted, k_cache)
    if query_start_loc.device.type == "cpu":
        starts = query_start_loc.tolist()
        if starts[0] != 0 or sorted(starts) != starts or starts[-1] > len(q):
            raise ValueError(
                f"{call}: query_start_loc is {starts}; it must start at 0, never fall, and end at {len(q)}, the tokens "
                f"of q, or below it"
            )


def minimal_decode(q: Tensor, k_cache: Tensor, v_cache: Tensor, block_tables: Tensor, seq_lens: Tensor) -> None:
    """Refuse what `minimal_decode` cannot attend to, and what only the larger kernels can."""
    call = "minimal_decode"
    arguments.tensors(call, q=q, k_cache=k_cache, v_cache=v_cache)
    queries(call, "num_seqs", q, k_cache, v_cache, None)
    sequences(call, len(q), k_cache, block_tables, seq_lens)
    named = {"q": q, "k_cache": k_cache, "v_cache": v_cache, "block_tables": block_tables, "seq_lens": seq_lens}
    for name, tensor in named.items():
        if not tensor.is_contiguous():
            raise ValueError(f"{call}: {name} has strides {tensor.stride()}; it must be contiguous")
    for name, size in (("block_size", k_cache.shape[1]), ("head_dim", k_cache.shape[3])):
        if size & (size - 1):
            raise ValueError(f"{call}: {name} is {size}; it must be a power of two")


def queries(call: str, rows: str, q: Tensor, k_cache: Tensor, v_cache: Tensor, tokens_per_tile: int | None) -> None:
    """Refuse queries that do not fit the caches, and tiles without a token."""
    arguments.caches(call, k_cache, v_cache)
    if k_cache.dtype in EIGHT_BITS:
        arguments.eight_bits(call, q, k_cache=k_cache, v_cache=v_cache)
    else:
        arguments.tensors(call, k_cache=k_cache, v_cache=v_cache, q=q)
    _, _, num_kv_heads, head_dim = k_cache.shape
    if q.ndim != 3 or q.shape[2] != head_dim:
        raise ValueError(f"{call}: q is {list(q.shape)}; it must be [{rows}, num_heads, {head_dim}]")
    if q.shape[1] == 0 or q.shape[1] % num_kv_heads:
        raise ValueError(
            f"{call}: q has {q.shape[1]} heads and the cache {num_kv_heads} KV heads; "
            f"the query heads must be a multiple of the KV heads"
        )
    if tokens_per_tile is not None and tokens_per_tile < 1:
        raise ValueError(f"{call}: tokens_per_tile is {tokens_per_tile}; it must be at least 1, or None")


def sequences(call: str, num_seqs: int, k_cache: Tensor, block_tables: Tensor, seq_lens: Tensor) -> None:
    """Refuse tables and lengths of another shape, and on the CPU lengths and blocks that are not there."""
    num_blocks, block_size, _, _ = k_cache.shape
    wanted = f"[num_seqs, max_blocks] = [{num_seqs}, any]"
    arguments.indices(call, "seq_lens", seq_lens, (num_seqs,), f"[num_seqs] = [{num_seqs}]", k_cache)
    arguments.indices(call, "block_tables", block_tables, (num_seqs, -1), wanted, k_cache)
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
