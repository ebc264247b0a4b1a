"""How fast `paged_decode` reads its cache on this machine's GPU. Needs an NVIDIA GPU.

So that the numbers are honest, the launches read several pools in turn, together larger than the L2 cache, with their
blocks in random order. Every output is compared with dense attention in float64 before the timing. A time is the median
of several rounds.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

import kernels

# K and V that one measurement reads: several times the L2 of any GPU of today.
POOL_BYTES = 600_000_000
Launch = Callable[[], Tensor]


@dataclass(frozen=True)
class Shape:
    """A batch to decode: `num_seqs` sequences of `seq_len` tokens."""

    num_seqs: int
    seq_len: int
    num_heads: int
    num_kv_heads: int
    head_dim: int = 128
    block_size: int = 16
    dtype: torch.dtype = torch.bfloat16
    kv_dtype: torch.dtype = torch.bfloat16

    @property
    def bytes(self) -> int:
        """The K and V that one launch must read."""
        return 2 * self.num_seqs * self.seq_len * self.num_kv_heads * self.head_dim * self.kv_dtype.itemsize


class DecodeCase:
    """Caches, tables and queries of one shape, in several pools, with the output of dense attention for each.

    k, v [num_blocks, block_size, num_kv_heads, head_dim]; q [pools, num_seqs, num_heads, head_dim]; tables
    [pools, num_seqs, max_blocks] int32, all blocks in one random order; seq_lens [num_seqs] int32. `options` holds the
    scales of 8-bit caches, float32 [num_kv_heads], the same for every head, because some peers take only one scale.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        pools = max(1, -(-POOL_BYTES // shape.bytes))
        blocks = pools * shape.num_seqs * shape.seq_len // shape.block_size
        random = torch.Generator(device="cuda").manual_seed(0)

        def normal(*size: int) -> Tensor:
            return torch.randn(size, device="cuda", generator=random, dtype=shape.dtype)

        # Without it int8 would hold little more than -3 to 3.
        spread = 20 if shape.kv_dtype == torch.int8 else 1
        size = (blocks, shape.block_size, shape.num_kv_heads, shape.head_dim)
        self.k, self.v = ((normal(*size) * spread).to(shape.kv_dtype) for _ in range(2))
        order = torch.randperm(blocks, device="cuda", generator=random).to(torch.int32)
        self.tables = order.view(pools, shape.num_seqs, -1)
        self.q = normal(pools, shape.num_seqs, shape.num_heads, shape.head_dim)
        self.seq_lens = torch.full((shape.num_seqs,), shape.seq_len, dtype=torch.int32, device="cuda")
        self.options: dict[str, Tensor] = {}
        if shape.kv_dtype != shape.dtype:
            scales = torch.tensor([0.75, 1.25], device="cuda")[:, None].repeat(1, shape.num_kv_heads) / spread
            self.options = {"k_scale": scales[0], "v_scale": scales[1]}
        self.wanted = [self._dense(pool) for pool in range(pools)]

    def launches(self) -> list[Launch]:
        """This project's kernel, one launch a pool."""
        return [self._launch(*arguments) for arguments in zip(self.q, self.tables, strict=True)]

    def error(self, outputs: Sequence[Tensor]) -> float:
        """The largest difference from dense attention over its largest value, over all pools."""
        return max(relative_error(out, wanted) for out, wanted in zip(outputs, self.wanted, strict=True))

    def gigabytes_a_second(self, microseconds: float) -> float:
        return self.shape.bytes / microseconds / 1000

    def _launch(self, q: Tensor, tables: Tensor) -> Launch:
        k_scale, v_scale = (self.options.get(name) for name in ("k_scale", "v_scale"))
        given = (q, self.k, self.v, tables, self.seq_lens)
        return lambda: kernels.paged_decode(*given, k_scale=k_scale, v_scale=v_scale)

    def _dense(self, pool: int) -> Tensor:
        rows = []
        for seq, table in enumerate(self.tables[pool].long()):
            k, v = self._read(self.k, table, "k_scale"), self._read(self.v, table, "v_scale")
            rows.append(kernels.dense_attention(self.q[pool, seq : seq + 1], k, v))
        return torch.cat(rows)

    def _read(self, cache: Tensor, table: Tensor, scale: str) -> Tensor:
        """A sequence's keys or values as float32, dequantized: [seq_len, num_kv_heads, head_dim]."""
        bits = cache.view(torch.int8 if cache.itemsize == 1 else cache.dtype)[table]
        numbers = bits.view(cache.dtype).flatten(0, 1).float()
        return numbers * self.options[scale][:, None] if scale in self.options else numbers


def relative_error(out: Tensor, wanted: Tensor) -> float:
    """The largest difference over the largest wanted value; inf if anything in `out` is not finite."""
    difference = (out.double() - wanted).abs().max() / wanted.abs().max()
    return float(difference) if bool(out.isfinite().all()) else float("inf")


def capture(launches: Sequence[Launch]) -> tuple[torch.cuda.CUDAGraph, list[Tensor]]:
    """Capture launches in one CUDA graph, one after the other, and replay it once: the graph and the outputs."""
    # The first call compiles, which a capture does not allow; a peer may also allocate in its first call.
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for launch in launches:
            launch()
    torch.cuda.current_stream().wait_stream(aside)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = [launch() for launch in launches]
    graph.replay()
    torch.cuda.synchronize()
    return graph, outputs


def median_microseconds(run: Callable[[], object], rounds: int, warm_up: int = 10) -> float:
    """The median time of `run` on the GPU, by events around it; the warm-up lets the GPU's clocks rise first."""
    for _ in range(warm_up):
        run()
    times: list[float] = []
    for _ in range(rounds):
        start, end = _event(), _event()
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(float(start.elapsed_time(end)) * 1000)
    return statistics.median(times)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def decode_bandwidth(block_sizes: Sequence[int], rounds: int = 9) -> list[dict[str, float]]:
    """Measure decoding at each block size: 8 sequences of 8192 tokens, 32 query and 8 KV heads, head_dim 128, bfloat16.

    Returns a row for each block size, in order: "block_size", "microseconds" of one launch, "gb_s", the gigabytes of K
    and V that are read a second, and "error", the largest difference from float64 dense attention over its largest
    value. A block size must divide 8192. Needs an NVIDIA GPU; the first call ever also compiles, about a second a block
    size.

    Example: decode_bandwidth([16]) -> [{"block_size": 16, "microseconds": ..., "gb_s": ..., "error": ...}]
    """
    rows = []
    for block_size in block_sizes:
        case = DecodeCase(Shape(8, 8192, 32, 8, block_size=block_size))
        graph, outputs = capture(case.launches())
        error = case.error(outputs)
        microseconds = median_microseconds(graph.replay, rounds) / len(outputs)
        rate = case.gigabytes_a_second(microseconds)
        rows.append({"block_size": block_size, "microseconds": microseconds, "gb_s": rate, "error": error})
    return rows
