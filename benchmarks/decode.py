"""How long one decode step's attention takes on this GPU: microseconds and GB/s, by shape and dtype of KV.

    python -m benchmarks.decode [--rounds 15]

bfloat16 queries, head_dim 128, block_size 16, blocks scattered at random. A CUDA graph replays over pools that together
are larger than the L2 cache; each output is compared with dense attention in float64 before anything is timed. Bytes
are the K and V that must be read. An error is the largest difference over the largest value of the reference.
"""

import argparse
import statistics

import torch

import kernels

HEAD_DIM, BLOCK_SIZE = 128, 16
POOL_BYTES = 600_000_000  # of KV behind one graph: several times the L2 of any GPU of today
SHAPES = {  # sequences, tokens each, query heads, KV heads
    "GQA 1 x 8k": (1, 8192, 32, 8),
    "GQA 1 x 64k": (1, 65536, 32, 8),
    "GQA 8 x 8k": (8, 8192, 32, 8),
    "GQA 64 x 8k": (64, 8192, 32, 8),
    "GQA 256 x 1k": (256, 1024, 32, 8),
    "MHA 8 x 8k": (8, 8192, 32, 32),
    "MQA 64 x 8k": (64, 8192, 32, 1),
}
DTYPES = {"bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn, "int8": torch.int8}


class Case:
    """Caches, tables and queries of one shape, in several pools, with what dense attention gives for each."""

    def __init__(self, shape: tuple[int, int, int, int], dtype: torch.dtype) -> None:
        num_seqs, seq_len, num_heads, num_kv_heads = shape
        self.bytes = 2 * num_seqs * seq_len * num_kv_heads * HEAD_DIM * dtype.itemsize
        pools = max(1, -(-POOL_BYTES // self.bytes))
        blocks = pools * num_seqs * seq_len // BLOCK_SIZE
        random = torch.Generator(device="cuda").manual_seed(0)

        def normal(*size: int) -> torch.Tensor:
            return torch.randn(size, device="cuda", generator=random, dtype=torch.bfloat16)

        spread = 20 if dtype == torch.int8 else 1  # or int8 would hold hardly more than -3 to 3
        cache = [(normal(blocks, BLOCK_SIZE, num_kv_heads, HEAD_DIM) * spread).to(dtype) for _ in range(2)]
        self.k, self.v = cache
        self.tables = torch.randperm(blocks, device="cuda", generator=random).to(torch.int32).view(pools, num_seqs, -1)
        self.q = normal(pools, num_seqs, num_heads, HEAD_DIM)
        self.seq_lens = torch.full((num_seqs,), seq_len, dtype=torch.int32, device="cuda")
        scales = [(torch.rand(num_kv_heads, device="cuda") + 0.5) / spread for _ in range(2)]
        self.options = {} if dtype == torch.bfloat16 else dict(zip(("k_scale", "v_scale"), scales, strict=True))
        self.wanted = [self._dense(pool) for pool in range(pools)]

    def _dense(self, pool: int) -> torch.Tensor:
        rows = []
        for seq, table in enumerate(self.tables[pool].long()):
            read = [cache.view(torch.int8 if cache.itemsize == 1 else cache.dtype)[table] for cache in (self.k, self.v)]
            kv = [part.view(self.k.dtype).flatten(0, 1).float() for part in read]
            for i, scale in enumerate(self.options.values()):
                kv[i] = kv[i] * scale[:, None]
            rows.append(kernels.dense_attention(self.q[pool, seq : seq + 1], *kv))
        return torch.cat(rows)

    def measure(self, rounds: int) -> tuple[float, float]:
        """Median microseconds of one launch, and the largest relative error of any pool's output."""

        def launch(pool: int) -> torch.Tensor:
            return kernels.paged_decode(self.q[pool], self.k, self.v, self.tables[pool], self.seq_lens, **self.options)

        launch(0)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = [launch(pool) for pool in range(len(self.q))]
        for _ in range(10):
            graph.replay()
        torch.cuda.synchronize()
        error = max(
            float((out.double() - wanted).abs().max() / wanted.abs().max())
            for out, wanted in zip(outputs, self.wanted, strict=True)
        )
        times = []
        for _ in range(10):  # the comparison let the clocks fall
            graph.replay()
        for _ in range(rounds):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) * 1000 / len(self.q))
        return statistics.median(times), error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    print(f"{kernels.backend_name()}; torch {torch.__version__}")
    if kernels.device().type != "cuda":
        print("An interpreted launch says nothing about speed: this needs an NVIDIA GPU.")
        return
    print(f"{'shape':14}" + "".join(f"{name + ' us':>12}{'GB/s':>8}{'error':>10}" for name in DTYPES))
    for name, shape in SHAPES.items():
        row = f"{name:14}"
        for dtype in DTYPES.values():
            case = Case(shape, dtype)
            microseconds, error = case.measure(rounds)
            row += f"{microseconds:12.1f}{case.bytes / microseconds / 1000:8.0f}{error:10.1e}"
            del case
            torch.cuda.empty_cache()
        print(row, flush=True)


if __name__ == "__main__":
    main()
