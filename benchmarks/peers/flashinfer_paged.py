"""FlashInfer (PyPI: flashinfer-python), paged: its tensor-core kernel for decode, its Hopper kernel for prefill.

It compiles its kernels at their first use, with nvcc and ninja, about a minute for each pair of dtypes and head_dim.
Later runs take them from its cache.
"""

from functools import cache
from importlib.metadata import version as installed
from typing import Any

import torch
from torch import Tensor

from benchmarks.peers.absent import Absent
from pagedviz.runtime.measuring.bandwidth import Launch

NAME = "FlashInfer"
TIMED = "graph"
HEAD_DIMS = (64, 128, 256)


def version() -> str:
    _library()
    return installed("flashinfer-python")


@cache
def _library() -> Any:
    try:
        import flashinfer
    except ImportError as error:
        raise Absent(f"not installed ({error.name})") from None
    return flashinfer


@cache
def _workspace() -> Tensor:
    """Scratch memory that all launches share: they run one after the other."""
    return torch.zeros(512 * 2**20, dtype=torch.uint8, device="cuda")


def _pages(tables: Tensor, seq_lens: Tensor, block_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """FlashInfer's form of a batch of block tables: row starts, all entries, tokens in each last block."""
    used = (seq_lens + block_size - 1) // block_size
    begins = torch.zeros(len(seq_lens) + 1, dtype=torch.int32, device=tables.device)
    begins[1:] = used.cumsum(0)
    columns = torch.arange(tables.shape[1], device=tables.device)
    entries = tables[columns < used[:, None]].to(torch.int32)
    return begins, entries, (seq_lens - (used - 1) * block_size).to(torch.int32)


def _checked(q: Tensor, k: Tensor) -> None:
    if q.shape[-1] not in HEAD_DIMS:
        raise Absent(f"has head_dim {', '.join(map(str, HEAD_DIMS))} only")
    if k.dtype == torch.int8:
        raise Absent("has no int8 cache")


def decode(q: Tensor, k: Tensor, v: Tensor, tables: Tensor, seq_lens: Tensor, **scales: Tensor) -> list[Launch]:
    _checked(q, k)
    heads = (q.shape[-2], k.shape[2], q.shape[-1], k.shape[1])
    # It takes one scale for all heads, as a number.
    options = {name: float(scale[0]) for name, scale in scales.items()}

    def planned(query: Tensor, table: Tensor) -> Launch:
        begins, entries, last = _pages(table, seq_lens, k.shape[1])
        wrapper = _library().BatchDecodeWithPagedKVCacheWrapper(
            _workspace(),
            "NHD",
            use_cuda_graph=True,
            use_tensor_cores=True,
            paged_kv_indptr_buffer=torch.empty_like(begins),
            paged_kv_indices_buffer=torch.empty_like(entries),
            paged_kv_last_page_len_buffer=torch.empty_like(last),
            backend="fa2",
        )
        wrapper.plan(begins, entries, last, *heads, q_data_type=q.dtype, kv_data_type=k.dtype)
        return lambda: wrapper.run(query, (k, v), **options)

    return [planned(query, table) for query, table in zip(q, tables, strict=True)]


def prefill(
    q: Tensor, k: Tensor, v: Tensor, tables: Tensor, seq_lens: Tensor, query_start_loc: Tensor, **scales: Tensor
) -> list[Launch]:
    _checked(q, k)
    if scales:
        raise Absent("prefill over an 8-bit cache was not tried")
    heads = (q.shape[-2], k.shape[2], q.shape[-1], k.shape[1])
    backend = "fa3" if torch.cuda.get_device_capability()[0] == 9 else "fa2"

    def planned(query: Tensor, table: Tensor) -> Launch:
        begins, entries, last = _pages(table, seq_lens, k.shape[1])
        wrapper = _library().BatchPrefillWithPagedKVCacheWrapper(_workspace(), "NHD", backend=backend)
        starts = query_start_loc.to(torch.int32)
        wrapper.plan(starts, begins, entries, last, *heads, causal=True, q_data_type=q.dtype, kv_data_type=k.dtype)
        return lambda: wrapper.run(query, (k, v))

    return [planned(query, table) for query, table in zip(q, tables, strict=True)]
