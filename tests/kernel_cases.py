"""Small paged batches with known answers, for the tests of the kernels.

Every slot that no sequence owns is poisoned (NaN unless a test says otherwise), and every table entry that no sequence
needs is a trap, so that a kernel which reads where it must not gives a wrong answer.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

import kernels
from kernels import launch

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
DTYPES = list(TOLERANCE)
NAN, INF = float("nan"), float("inf")


def on_gpu(test):
    """Mark a test that only an NVIDIA GPU can run."""
    skip = pytest.mark.skipif(not launch.COMPILED, reason="needs an NVIDIA GPU and compiled Triton")
    return pytest.mark.gpu(skip(test))


@dataclass(frozen=True)
class Shape:
    """A batch to decode: `lens` tokens per sequence, `group` query heads per KV head."""

    lens: Sequence[int] = (5, 0, 12)
    kv_heads: int = 2
    group: int = 2
    head_dim: int = 8
    block_size: int = 4
    dtype: torch.dtype = torch.float32

    def __str__(self) -> str:
        lens = ",".join(map(str, self.lens)) if len(self.lens) < 5 else f"{len(self.lens)}seqs"
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{lens}-{self.group}x{self.kv_heads}heads-dim{self.head_dim}-block{self.block_size}-{dtype}"


@dataclass
class Batch:
    """What `paged_decode` takes, and what it must answer."""

    q: Tensor
    k_cache: Tensor
    v_cache: Tensor
    block_tables: Tensor
    seq_lens: Tensor
    expected: Tensor

    def decode(self, **options: object) -> Tensor:
        return kernels.paged_decode(self.q, self.k_cache, self.v_cache, self.block_tables, self.seq_lens, **options)

    def check(self, **options: object) -> None:
        assert_near(self.decode(**options), self.expected)

    def own(self, cache: Tensor, row: int, scale: Tensor | None = None) -> Tensor:
        """What one sequence has in a cache, dequantized: float64 [seq_len, num_kv_heads, head_dim]."""
        block_size = cache.shape[1]
        at = torch.arange(int(self.seq_lens[row]), device=cache.device)
        blocks, offsets = self.block_tables[row].long()[at // block_size], at % block_size
        numbers = cache.view(torch.uint8)[blocks, offsets].view(cache.dtype).double()
        return numbers if scale is None else numbers * (scale if scale.ndim == 1 else scale[blocks, offsets])[..., None]

    def dense(self, k_scale: Tensor | None = None, v_scale: Tensor | None = None, **options: object) -> Tensor:
        """What dense attention answers with these options, float64."""
        rows = range(len(self.q))
        kv = [(self.own(self.k_cache, i, k_scale), self.own(self.v_cache, i, v_scale)) for i in rows]
        return torch.cat([kernels.dense_attention(self.q[i : i + 1], *kv[i], **options) for i in rows])

    def check_options(self, **options: object) -> None:
        """Compare with dense attention under the same options, but for how the kernel cuts its work."""
        dense = {name: value for name, value in options.items() if name != "tokens_per_tile"}
        assert_near(self.decode(**options), self.dense(**dense))


def assert_near(got: Tensor, expected: Tensor) -> None:
    tolerance = TOLERANCE[got.dtype]
    torch.testing.assert_close(got.double(), expected.double(), atol=tolerance, rtol=tolerance)


def assert_same_bits(got: Tensor, expected: Tensor) -> None:
    """Compare memory, not numbers: a NaN equals itself, and 0.0 is not -0.0."""
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert torch.equal(got.contiguous().view(torch.uint8), expected.contiguous().view(torch.uint8))


def randn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """The same numbers on every machine: drawn on the CPU, then moved."""
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator).to(dtype).to(kernels.device())


def ids(*values: int, dtype: torch.dtype = torch.int64) -> Tensor:
    return torch.tensor(values, dtype=dtype, device=kernels.device())


def random_bits(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Any bit pattern there is, NaNs with payloads among them."""
    size = torch.empty(0, dtype=dtype).element_size()
    generator = torch.Generator().manual_seed(sum(shape))
    raw = torch.randint(0, 256, (*shape[:-1], shape[-1] * size), dtype=torch.uint8, generator=generator)
    return raw.view(dtype).to(kernels.device())


def make_batch(
    shape: Shape,
    *,
    poison: tuple[float, float] = (NAN, NAN),
    padding: int = -1,
    spare_columns: int = 0,
    index_dtype: torch.dtype = torch.int64,
    caches: tuple[Tensor, Tensor] | None = None,
) -> Batch:
    """Scatter a batch over shuffled blocks; `poison` fills K and V slots that no sequence owns, `padding` the table."""
    blocks_of = [-(-n // shape.block_size) for n in shape.lens]
    num_blocks = sum(blocks_of) + 3
    if caches is None:
        size = (num_blocks, shape.block_size, shape.kv_heads, shape.head_dim)
        caches = torch.empty(size, dtype=shape.dtype), torch.empty(size, dtype=shape.dtype)
        caches = caches[0].to(kernels.device()), caches[1].to(kernels.device())
    k_cache, v_cache = caches
    k_cache.fill_(poison[0])
    v_cache.fill_(poison[1])

    free = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(1)).tolist()
    q = randn(len(shape.lens), shape.kv_heads * shape.group, shape.head_dim, dtype=shape.dtype)
    table = torch.full((len(shape.lens), max(blocks_of, default=0) + spare_columns), padding, dtype=index_dtype)
    expected = torch.zeros(q.shape, dtype=torch.float64)
    for i, n in enumerate(shape.lens):
        row = [free.pop() for _ in range(blocks_of[i])]
        table[i, : len(row)] = torch.tensor(row, dtype=index_dtype)
        k, v = (randn(n, shape.kv_heads, shape.head_dim, dtype=shape.dtype, seed=s + 10 * i) for s in (1, 2))
        # Written by plain indexing, so that this answer owes nothing to the kernel that stores.
        for t in range(n):
            k_cache[row[t // shape.block_size], t % shape.block_size] = k[t]
            v_cache[row[t // shape.block_size], t % shape.block_size] = v[t]
        expected[i] = kernels.dense_attention(q[i : i + 1], k, v)[0]
    seq_lens = torch.tensor(shape.lens, dtype=index_dtype)
    where = kernels.device()
    return Batch(q, k_cache, v_cache, table.to(where), seq_lens.to(where), expected.to(where))


def quantize(batch: Batch, dtype: torch.dtype, per: str) -> dict[str, Tensor]:
    """Turn a batch's caches into 8-bit numbers; return scales per "head" or "slot", NaN in the slots of others."""
    shape = batch.k_cache.shape[2:3] if per == "head" else batch.k_cache.shape[:3]
    step = 1 / 32 if dtype == torch.int8 else 1.0
    scales = {name: randn(*shape, seed=seed).abs() * step + step / 2 for seed, name in ((5, "k_scale"), (6, "v_scale"))}
    if per == "slot":
        poisoned = batch.k_cache[..., 0].isnan()
        for scale in scales.values():
            scale[poisoned] = NAN
    for name in ("k_cache", "v_cache"):
        cache = getattr(batch, name).float() / step
        if dtype == torch.int8:
            cache = cache.nan_to_num(nan=77).clamp(-128, 127)
        setattr(batch, name, cache.cpu().to(dtype).to(cache.device))
    return scales


def sparse_memory(tmp_path: Path, elements: int) -> Tensor:
    """Gigabytes of float16 of which only what is touched exists: a sparse file on the CPU, real memory on a GPU."""
    # An offset that wraps turns negative; with 2^31 elements in front it lands here, and the test fails by name.
    elements += 2**31
    if kernels.device().type == "cuda":
        memory = torch.empty(elements, dtype=torch.float16, device="cuda")
    else:
        memory = torch.from_file(str(tmp_path / "memory"), shared=True, size=elements, dtype=torch.float16)
    return memory[2**31 :]


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, which chooses its backend anew."""
    env = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"} | environment
    root = Path(__file__).parents[1]
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd=root, timeout=120)
