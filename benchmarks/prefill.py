"""How long the attention of many new tokens takes on this GPU: TFLOP/s, by batch and block size.

    python -m benchmarks.prefill [--rounds 15]

bfloat16, 32 query heads over 8 KV heads, head_dim 128, blocks scattered at random. Each output is compared with dense
attention in float64 before a CUDA graph of a few calls is replayed. Flops are those of the pairs of a query and a key
that it sees, 4 * head_dim a head. An error is the largest difference over the largest value of the reference.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator

import torch

import kernels

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
Call = Callable[..., torch.Tensor]


class Case:
    """Caches, tables, lengths and queries of one batch at one block size, with what dense attention gives."""

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
        """What `paged_prefill` takes, in its order."""
        return self.q, self.k, self.v, self.tables, self.seq_lens, self.starts

    def error(self, out: torch.Tensor, at_once: int = 512) -> float:
        """The largest difference from dense attention in float64, over the largest value of that."""
        worst = largest = 0.0
        starts = self.starts.tolist()
        for seq, seq_len in enumerate(self.seq_lens.tolist()):
            blocks = self.tables[seq, : -(-seq_len // self.block_size)].long()
            k, v = (cache[blocks].flatten(0, 1)[:seq_len] for cache in (self.k, self.v))
            for first in range(starts[seq], starts[seq + 1], at_once):
                last = min(first + at_once, starts[seq + 1])
                seen = seq_len - (starts[seq + 1] - last)
                wanted = kernels.dense_attention(self.q[first:last], k[:seen], v[:seen])
                worst = max(worst, float((out[first:last].double() - wanted).abs().max()))
                largest = max(largest, float(wanted.abs().max()))
        return worst / largest


def cases() -> Iterator[Case]:
    """Every batch at every block size, one in memory at a time."""
    for name in BATCHES:
        for block_size in BLOCK_SIZES:
            yield Case(name, block_size)


def measure(case: Case, call: Call, rounds: int = 15, calls: int = 4) -> float:
    """Median microseconds of `call(*case.inputs())`, several in a CUDA graph so that starting one hardly counts."""
    inputs = case.inputs()
    call(*inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call(*inputs)
    times = []
    for i in range(5 + rounds):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times += [start.elapsed_time(end) * 1000 / calls] * (i >= 5)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    print(f"{kernels.backend_name()}; torch {torch.__version__}")
    if kernels.device().type != "cuda":
        print("An interpreted launch says nothing about speed: this needs an NVIDIA GPU.")
        return
    print(f"{'batch':24}{'block_size':>12}{'us':>10}{'TFLOP/s':>10}{'error':>10}")
    for case in cases():
        error = case.error(kernels.paged_prefill(*case.inputs()))
        microseconds = measure(case, kernels.paged_prefill, rounds)
        tflops = case.flops / microseconds / 1e6
        print(f"{case.name:24}{case.block_size:12}{microseconds:10.1f}{tflops:10.1f}{error:10.1e}", flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
