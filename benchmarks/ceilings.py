"""The best rates of this GPU's memory, in GB/s: of a copy, counting both ways, and of a read that keeps nothing."""

import torch
from torch import Tensor

# Before triton: importing `kernels` chooses triton's backend.
from pagedviz.runtime.measuring.bandwidth import median_microseconds  # isort: skip
import triton
import triton.language as tl

BYTES = 4 * 2**30


@triton.jit
def read_kernel(numbers, largest, TILE: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)
    tile = tl.load(numbers + program * TILE + tl.arange(0, TILE))
    tl.store(largest + program, tl.max(tile))


def _read(numbers: Tensor, tile: int, num_warps: int) -> None:
    programs = numbers.numel() // tile
    largest = torch.empty(programs, dtype=numbers.dtype, device=numbers.device)
    read_kernel[(programs,)](numbers, largest, TILE=tile, num_warps=num_warps)


def measure(rounds: int) -> dict[str, float]:
    """The median of the copy, and the fastest median of four ways to read."""
    numbers = torch.randint(2**31, (BYTES // 4,), dtype=torch.int32, device="cuda")
    target = torch.empty_like(numbers)
    copy = 2 * BYTES / median_microseconds(lambda: target.copy_(numbers), rounds) / 1000
    reads = [
        BYTES / median_microseconds(lambda way=way: _read(numbers, *way), rounds) / 1000
        for way in ((4096, 4), (8192, 8), (16384, 8), (32768, 16))
    ]
    return {"copy": round(copy, 1), "read": round(max(reads), 1)}
