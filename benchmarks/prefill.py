"""How long the attention of many new tokens takes on this GPU: TFLOP/s, by batch and block size.

    python -m benchmarks.prefill [--rounds 15] [--alone]

bfloat16, 32 query heads over 8 KV heads, head_dim 128, blocks scattered at random, with peers. The flops count each
pair of a query and a key that it sees: 4 * head_dim a head. `benchmarks/contest.py` times the launches.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property, partial

import torch

import kernels
from benchmarks import tables
from benchmarks.contest import Contest, base_row
from pagedviz.measurements import Row
from pagedviz.runtime.measuring.bandwidth import relative_error

NUM_HEADS, NUM_KV_HEADS, HEAD_DIM = 32, 8, 128
BLOCK_SIZES = (16, 64, 128)
BATCHES = {  # new and cached tokens of each sequence
    "8192 new": [(8192, 0)],
    "2048 new after 30720": [(2048, 30720)],
    "8 ragged": list(
        zip((4096, 3000, 2048, 1500, 1024, 700, 300, 128), (0, 1000, 4096, 0, 8192, 500, 2000, 0), strict=True)
    ),
    "63 decodes + 2048 new": [(1, 8191)] * 63 + [(2048, 0)],
    "16 verify 5 after 8192": [(5, 8192)] * 16,
}
CALLS = 4  # in one CUDA graph, so that the graph's own start takes a small part of the time
AT_ONCE = 512  # queries of the reference


class Case:
    """Caches, tables, lengths and queries of one batch at one block size, with the output of dense attention."""

    def __init__(self, name: str, block_size: int) -> None:
        self.name, self.block_size = name, block_size
        new, cached = (torch.tensor(tokens) for tokens in zip(*BATCHES[name], strict=True))
        lens = new + cached
        visible = sum(int(n * c + n * (n + 1) // 2) for n, c in zip(new.tolist(), cached.tolist(), strict=True))
        self.flops = 4 * NUM_HEADS * HEAD_DIM * visible
        random = torch.Generator(device="cuda").manual_seed(0)

        def normal(*size: int) -> torch.Tensor:
            return torch.randn(size, device="cuda", generator=random, dtype=torch.bfloat16)

        columns = -(-lens // block_size)
        free = torch.randperm(int(columns.sum()), device="cuda", generator=random).to(torch.int32)
        self.k, self.v = (normal(len(free), block_size, NUM_KV_HEADS, HEAD_DIM) for _ in range(2))
        self.tables = torch.full((len(new), int(columns.max())), -1, dtype=torch.int32, device="cuda")
        for row, blocks in zip(self.tables, free.split(columns.tolist()), strict=True):
            row[: len(blocks)] = blocks
        self.q = normal(int(new.sum()), NUM_HEADS, HEAD_DIM)
        self.starts = torch.cat([torch.zeros(1, dtype=torch.int64), new.cumsum(0)]).to(torch.int32).cuda()
        self.seq_lens = lens.to(torch.int32).cuda()

    def inputs(self) -> tuple[torch.Tensor, ...]:
        """The arguments of `paged_prefill`, in order."""
        return self.q, self.k, self.v, self.tables, self.seq_lens, self.starts

    @cached_property
    def wanted(self) -> torch.Tensor:
        """Dense attention in float64: [num_tokens, num_heads, head_dim]."""
        rows = []
        starts = self.starts.tolist()
        for seq, seq_len in enumerate(self.seq_lens.tolist()):
            blocks = self.tables[seq, : -(-seq_len // self.block_size)].long()
            k, v = (cache[blocks].flatten(0, 1)[:seq_len] for cache in (self.k, self.v))
            for first in range(starts[seq], starts[seq + 1], AT_ONCE):
                last = min(first + AT_ONCE, starts[seq + 1])
                seen = seq_len - (starts[seq + 1] - last)
                rows.append(kernels.dense_attention(self.q[first:last], k[:seen], v[:seen]))
        return torch.cat(rows)

    def error(self, outputs: Sequence[torch.Tensor]) -> float:
        """The largest difference of any output from dense attention, over the largest value of that."""
        return max(relative_error(out, self.wanted) for out in outputs)


def cases() -> Iterator[Case]:
    """Every batch at every block size, one in memory at a time."""
    for name in BATCHES:
        for block_size in BLOCK_SIZES:
            yield Case(name, block_size)


def by_batch(contest: Contest) -> Iterator[Row]:
    """Every case. One pool is enough: in real prefills too, the keys that a tile of queries reads again are in L2."""
    for case in cases():
        yield from run(case, contest)


def run(case: Case, contest: Contest) -> Iterator[Row]:
    q, k, v, table, seq_lens, starts = case.inputs()
    yield from contest.rows(
        base_row("prefill", f"{case.name}, block_size {case.block_size}", "TFLOP/s", k, q.dtype),
        [partial(kernels.paged_prefill, *case.inputs())] * CALLS,
        lambda peer: peer.prefill(q[None], k, v, table[None], seq_lens, starts) * CALLS,
        case.error,
        lambda microseconds: case.flops / microseconds / 1e6,
    )


TABLES = {"prefill": by_batch}

if __name__ == "__main__":
    tables.main(__doc__, TABLES)
