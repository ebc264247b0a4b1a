"""jax's paged_attention for GPUs (Pallas on Triton), decode only. Its pages lie [num_kv_heads, num_blocks, ...]."""

import os
from functools import cache, partial
from typing import Any

from torch import Tensor

from benchmarks.peers.absent import Absent
from pagedviz.runtime.measuring.bandwidth import Launch

NAME = "jax paged_attention"
TIMED = "host clock"
TILE = 128  # tokens an iteration takes: its own default at block_size 16
SPLITS = 16  # its default

# Without this jax takes three quarters of the GPU's memory at its start.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


@cache
def _library() -> tuple[Any, Any]:
    try:
        import jax
        from jax.experimental.pallas.ops.gpu import paged_attention
    except ImportError as error:
        raise Absent(f"not installed ({error.name or error})") from None
    if jax.default_backend() != "gpu":
        raise Absent(f"the installed jax has no GPU backend, only {jax.default_backend()}")
    return jax, paged_attention.paged_attention


def version() -> str:
    return str(_library()[0].__version__)


def decode(q: Tensor, k: Tensor, v: Tensor, tables: Tensor, seq_lens: Tensor, **scales: Tensor) -> list[Launch]:
    jax, attention = _library()
    if scales:
        raise Absent("its scales are per token, not per head")
    if q.shape[-1] & (q.shape[-1] - 1):
        raise Absent("has head_dim of powers of 2 only")
    block_size = k.shape[1]
    keys, values, lens = (
        jax.dlpack.from_dlpack(x) for x in (*(cache.permute(2, 0, 1, 3).contiguous() for cache in (k, v)), seq_lens)
    )
    splits = min(SPLITS, tables.shape[-1])
    options = {"pages_per_compute_block": max(1, TILE // block_size), "k_splits": splits}
    # Its scores are not scaled: the query is, before the clock runs.
    queries = [jax.dlpack.from_dlpack((query * query.shape[-1] ** -0.5).contiguous()) for query in q]
    rows = [jax.dlpack.from_dlpack(table.contiguous()) for table in tables]
    return [
        partial(attention, query, keys, values, row, lens, **options) for query, row in zip(queries, rows, strict=True)
    ]


def prefill(*arguments: Tensor, **scales: Tensor) -> list[Launch]:
    raise Absent("has no paged prefill for GPUs")
