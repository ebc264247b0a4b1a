"""Batches of new tokens with known answers, for the tests of `paged_prefill`: `kernel_cases.py` with more queries."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

import kernels
from kernels import reference
from kernels.prefill import plan as prefill_plan
from tests.kernel_cases import Batch, Shape, assert_near, ids, make_batch, randn


@dataclass
class Prefill:
    """What `paged_prefill` takes: a batch whose q holds the newest tokens of each sequence."""

    batch: Batch
    query_start_loc: Tensor

    def arguments(self) -> dict[str, Tensor]:
        names = ("q", "k_cache", "v_cache", "block_tables", "seq_lens")
        return {name: getattr(self.batch, name) for name in names} | {"query_start_loc": self.query_start_loc}

    def run(self, **options: object) -> Tensor:
        return kernels.paged_prefill(**self.arguments(), **options)

    def run_reference(self, **options: object) -> Tensor:
        return reference.paged_prefill(**self.arguments(), **options)

    def dense(self, k_scale: Tensor | None = None, v_scale: Tensor | None = None, **options: object) -> Tensor:
        """What dense attention answers with these options, float64; zeros in the rows after the last sequence's."""
        out = torch.zeros_like(self.batch.q, dtype=torch.float64)
        for i, (start, stop) in enumerate(zip(self.query_start_loc[:-1], self.query_start_loc[1:], strict=True)):
            k, v = self.batch.own(self.batch.k_cache, i, k_scale), self.batch.own(self.batch.v_cache, i, v_scale)
            out[start:stop] = kernels.dense_attention(self.batch.q[start:stop], k, v, **options)
        return out

    def check(self, **options: object) -> None:
        """Compare with dense attention under the same options, but for how the kernel cuts its work."""
        dense = {name: value for name, value in options.items() if name != "tokens_per_tile"}
        assert_near(self.run(**options), self.dense(**dense))


def starts_of(query_lens: Sequence[int]) -> list[int]:
    return [sum(query_lens[:i]) for i in range(len(query_lens) + 1)]


def make_prefill(shape: Shape, query_lens: Sequence[int] | None = None, *, padding_rows: int = 0, **how) -> Prefill:
    """Make a batch that prefills the last `query_lens` tokens of sequences of `shape.lens`, all of them if None."""
    batch = make_batch(shape, **how)
    starts = starts_of(shape.lens if query_lens is None else query_lens)
    batch.q = randn(starts[-1] + padding_rows, shape.kv_heads * shape.group, shape.head_dim, dtype=shape.dtype, seed=7)
    return Prefill(batch, ids(*starts, dtype=batch.block_tables.dtype))


def cut(monkeypatch, **changes: int) -> None:
    """Change what the plan says: cut(monkeypatch, num_splits=3, tile_tokens=16)."""
    planned = prefill_plan.plan
    monkeypatch.setattr(prefill_plan, "plan", lambda *shape: planned(*shape)._replace(**changes))
