"""How fast this GPU moves blocks: GB/s of the kernels that copy, and of spills and reloads beside the computation.

    python -m benchmarks.copies [--rounds 15]

On the device bytes count twice, read and written; over the bus they count once. Blocks are scattered at random, and the
tensors are larger than the L2 cache. The moved blocks are compared bit for bit before the timing. The same run also
measures a plain copy of contiguous memory, and torch's own index_select and index_copy_.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator

import torch

import kernels
from benchmarks.contest import Contest
from kernels.reference import eight_bits
from pagedviz.measurements import OURS, Row
from pagedviz.runtime.cache.transfers import Transfers

WORKS = (  # in the order of `blocks`: the contestant, the work, and how often it reads or writes each byte
    (OURS, "copy_blocks", 4),
    (OURS, "gather", 2),
    (OURS, "scatter", 2),
    ("torch index", "gather", 2),
    ("torch index", "scatter", 2),
)
POOL_BYTES = 1 << 29  # of each of K and V: ten times the L2 of an H200
SHAPES = {  # block_size, KV heads, head_dim, dtype
    "block 8, dim 64 bf16": (8, 8, 64, torch.bfloat16),
    "block 16, dim 128 bf16": (16, 8, 128, torch.bfloat16),
    "block 16, dim 128 fp32": (16, 8, 128, torch.float32),
    "block 16, dim 128 fp8": (16, 8, 128, torch.float8_e4m3fn),
    "block 16, dim 80 bf16": (16, 8, 80, torch.bfloat16),
    "block 16, 1 head, dim 128 bf16": (16, 1, 128, torch.bfloat16),
    "block 64, dim 128 bf16": (64, 8, 128, torch.bfloat16),
    "block 256, dim 256 bf16": (256, 8, 256, torch.bfloat16),
    "block 256, dim 256 int8": (256, 8, 256, torch.int8),
    "block 16, 1 head, dim 64 int8": (16, 1, 64, torch.int8),
    "scales, block 16, 8 heads": (16, 8, 1, torch.float32),
}


MAIN_SHAPES = ("block 8, dim 64 bf16", "block 16, dim 128 bf16", "block 16, dim 128 fp8", "block 256, dim 256 bf16")


def milliseconds(work: Callable[[], object], rounds: int) -> float:
    """Median time of some work on the GPU. Launches queue behind a short sleep, so the GPU never waits for one."""
    times = []
    for i in range(rounds + 3):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(400_000)
        start.record()
        work()
        end.record()
        end.synchronize()
        if i >= 3:
            times.append(start.elapsed_time(end))
    return statistics.median(times)


def random_bits(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    size = shape[-1] * dtype.itemsize
    return torch.randint(0, 256, (*shape[:-1], size), dtype=torch.uint8, device="cuda").view(dtype)


def same(one: torch.Tensor, other: torch.Tensor) -> None:
    assert torch.equal(one.view(torch.uint8), other.view(torch.uint8))


def blocks(shape: tuple[int, int, int, torch.dtype], rounds: int) -> list[float]:
    """GB/s of copy_blocks, gather_blocks, scatter_blocks, index_select and index_copy_ over half of a pool."""
    *block, dtype = shape
    block_bytes = block[0] * block[1] * block[2] * dtype.itemsize
    count = POOL_BYTES // block_bytes // 2 * 2
    k, v = random_bits(count, *block, dtype=dtype), random_bits(count, *block, dtype=dtype)
    ids = torch.randperm(count, device="cuda")
    source, target = ids[: count // 2], ids[count // 2 :]
    out = torch.empty_like(k[: count // 2])
    # As integers of the same size: torch has no index_copy_ of float8.
    unit = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[dtype.itemsize]
    k_bits, v_bits, out_bits = k.view(unit), v.view(unit), out.view(unit)
    works: list[tuple[int, Callable[[], object]]] = [
        (4, lambda: kernels.copy_blocks(k, v, source, target)),
        (2, lambda: kernels.gather_blocks(k, source, out=out)),
        (2, lambda: kernels.scatter_blocks(v, target, out)),
        (2, lambda: torch.index_select(k_bits, 0, source, out=out_bits)),
        (2, lambda: v_bits.index_copy_(0, target, out_bits)),
    ]
    k_before, v_before = k_bits[source], v_bits[source]
    works[0][1]()
    same(k_bits[target], k_before)
    same(v_bits[target], v_before)
    same(k_bits[source], k_before)
    works[1][1]()
    same(out_bits, k_before)
    works[2][1]()
    same(v_bits[target], k_before)
    same(v_bits[source], v_before)
    moved = count // 2 * block_bytes
    return [ways * moved / milliseconds(work, rounds) / 1e6 for ways, work in works]


def by_shape(contest: Contest) -> Iterator[Row]:
    """The main shapes: this project's kernels, and torch's own where it has one."""
    for name in MAIN_SHAPES:
        block_size, num_kv_heads, head_dim, dtype = SHAPES[name]
        block_bytes = block_size * num_kv_heads * head_dim * dtype.itemsize
        moved = POOL_BYTES // block_bytes // 2 * block_bytes
        kind = str(dtype).removeprefix("torch.")
        for (contestant, work, ways), speed in sorted(
            zip(WORKS, blocks(SHAPES[name], contest.rounds), strict=True), key=_work
        ):
            took = ways * moved / speed / 1000
            numbers = {"microseconds": round(took, 2), "rate": round(speed, 1), "error": 0.0, "timed": "events"}
            yield Row("moves", f"{work}, {name}", contestant, "GB/s", block_size, head_dim, kind, kind, **numbers)


def _work(measured: tuple[tuple[str, str, int], float]) -> str:
    return measured[0][1]


def stores(rounds: int) -> None:
    """GB/s of store_kv: 32,768 tokens of 8 heads of 128 into scattered slots."""
    tokens, heads, head_dim, block_size = 32_768, 8, 128, 16
    k, v = (torch.randn(tokens, heads, head_dim, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    slots = torch.randperm(2 * tokens, device="cuda")[:tokens]
    shape = (2 * tokens // block_size, block_size, heads)
    print(f"\n{'store_kv of ' + format(tokens, ',') + ' tokens':34}{'GB/s':>10}{'us':>10}")
    for dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.int8):
        for per in ("",) if dtype == torch.bfloat16 else ("head", "slot"):
            caches = [torch.zeros(*shape, head_dim, device="cuda").to(dtype) for _ in range(2)]
            size = shape[2:] if per == "head" else shape
            scales = [torch.full(size, 0.03, device="cuda") for _ in range(2)] if per else [None, None]

            def store(caches=caches, scales=scales) -> None:
                kernels.store_kv(k, v, *caches, slots, k_scale=scales[0], v_scale=scales[1])

            store()
            for x, cache, scale in zip((k, v), caches, scales, strict=True):
                at = slots // block_size, slots % block_size
                wanted = x
                if per:
                    by_head = scale if per == "head" else eight_bits.scale_of(x, dtype)
                    wanted = eight_bits.quantized(x, dtype, by_head.expand(x.shape[:2]))
                    if per == "slot":
                        same(scale[at], by_head)
                same(cache.view(torch.uint8)[at], wanted.view(torch.uint8))
            took = milliseconds(store, rounds)
            moved = 2 * k.numel() * (2 + dtype.itemsize) + (2 * 4 * tokens * heads if per == "slot" else 0)
            name = f"{str(dtype).removeprefix('torch.')}{', a scale per ' + per if per else ''}"
            print(f"{name:34}{moved / took / 1e6:10.0f}{took * 1000:10.1f}", flush=True)


def journeys(rounds: int) -> None:
    """Spills and reloads of 256 blocks of 32 layers, beside a plain pinned copy and beside decoding."""
    slabs, count, block = 2 * 32, 512, (16, 8, 128)
    device = random_bits(slabs, count, *block, dtype=torch.bfloat16)
    transfers = Transfers(device, count // 2)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0)).tolist()
    out, stay = order[: count // 2], order[count // 2 :]
    in_a_row = list(range(count // 2))
    scattered = torch.randperm(count // 2, generator=torch.Generator().manual_seed(1)).tolist()
    current = torch.cuda.current_stream()

    def timed(move: Callable[[], None], beside: Callable[[], object] = lambda: None) -> float:
        def both() -> None:
            move()
            beside()
            current.wait_stream(transfers.stream)

        return milliseconds(both, rounds)

    before = device[:, out].clone()
    for host in (in_a_row, scattered):
        transfers.spill(out, host)
        transfers.wait_for_host()
        same(before.cpu(), transfers.host[:, host])
        device[:, out] = 0
        transfers.reload(host, out)
        transfers.claim()
        same(device[:, out], before)

    pinned = torch.empty_like(before, device="cpu", pin_memory=True)
    moved = before.numel() * before.itemsize
    spilled, reloaded = (timed(lambda: transfers.spill(out, in_a_row)), timed(lambda: transfers.reload(in_a_row, out)))
    rows = {
        "pinned copy down": milliseconds(lambda: pinned.copy_(before, non_blocking=True), rounds),
        "spill": spilled,
        "spill to every second host block": timed(lambda: transfers.spill(out[::2], in_a_row[::2])) * 2,
        "pinned copy up": milliseconds(lambda: before.copy_(pinned, non_blocking=True), rounds),
        "reload": reloaded,
        "reload from every second": timed(lambda: transfers.reload(in_a_row[::2], out[::2])) * 2,
    }
    print(f"\n{f'{moved >> 20} MiB, {len(out)} blocks of {slabs // 2} layers':34}{'ms':>12}{'GB/s':>8}")
    for name, took in rows.items():
        print(f"{name:34}{took:12.2f}{moved / took / 1e6:8.1f}", flush=True)

    # Decoding over the blocks that stay, for about as long as a spill takes.
    q = torch.randn(16, 32, block[2], device="cuda", dtype=torch.bfloat16)
    table = torch.tensor(stay, device="cuda", dtype=torch.int32).view(16, -1)
    lens = torch.full((16,), table.shape[1] * block[0], device="cuda", dtype=torch.int32)
    k, v = (torch.randn(count, *block, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    device[0].copy_(k)
    device[1].copy_(v)

    def decode() -> torch.Tensor:
        return kernels.paged_decode(q, device[0], device[1], table, lens)

    wanted = decode()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(1000):
            got = decode()
    graph.replay()
    same(got, wanted)
    alone = milliseconds(graph.replay, rounds)
    print(f"\n{'1000 decodes':34}{alone:12.2f} ms alone")
    for name, move, took in (
        ("spill", lambda: transfers.spill(out, in_a_row), spilled),
        ("reload", lambda: transfers.reload(in_a_row, out), reloaded),
    ):
        together = timed(move, graph.replay)
        same(got, wanted)
        print(f"{name + ' beside them':34}{took:12.2f} ms alone{together:12.2f} ms together", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    print(f"{kernels.backend_name()}; torch {torch.__version__}")
    if kernels.device().type != "cuda":
        print("An interpreted launch says nothing about speed: this needs an NVIDIA GPU.")
        return
    source = random_bits(POOL_BYTES, dtype=torch.uint8)
    target = torch.empty_like(source)
    ceiling = 2 * POOL_BYTES / milliseconds(lambda: target.copy_(source), rounds) / 1e6
    print(f"copy_ of contiguous memory, both ways: {ceiling:.0f} GB/s\n")
    names = ("copy_blocks", "gather", "scatter", "index_select", "index_copy_")
    print(f"{'GB/s':34}" + "".join(f"{name:>14}" for name in names))
    for name, shape in SHAPES.items():
        print(f"{name:34}" + "".join(f"{speed:14.0f}" for speed in blocks(shape, rounds)), flush=True)
    stores(rounds)
    journeys(rounds)


if __name__ == "__main__":
    main()
