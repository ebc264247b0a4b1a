"""How long the attention of one decode step takes on this GPU, with peers: microseconds and GB/s.

    python -m benchmarks.decode [--rounds 15] [--alone] [--only decode "block size" "head dim"]

Blocks are scattered at random. The bytes are the K and V that must be read. `benchmarks/contest.py` times the launches.
"""

from collections.abc import Iterator

import torch

from benchmarks import tables
from benchmarks.contest import Contest, base_row
from benchmarks.peers import flex_paged, jax_paged
from pagedviz.measurements import Row
from pagedviz.runtime.measuring.bandwidth import DecodeCase, Shape

SHAPES = {
    "GQA 1 × 8k": Shape(1, 8192, 32, 8),
    "GQA 1 × 64k": Shape(1, 65536, 32, 8),
    "GQA 8 × 8k": Shape(8, 8192, 32, 8),
    "GQA 64 × 8k": Shape(64, 8192, 32, 8),
    "GQA 256 × 1k": Shape(256, 1024, 32, 8),
    "MHA 8 × 8k": Shape(8, 8192, 32, 32),
    "MQA 64 × 8k": Shape(64, 8192, 32, 1),
}
KV_DTYPES = {"fp8": torch.float8_e4m3fn, "int8": torch.int8}
BLOCK_SIZES = (8, 16, 32, 64, 128, 256)
HEAD_DIMS = (64, 80, 96, 128, 256)
SLOW_TO_START = (flex_paged, jax_paged)  # these compile for every case, some seconds each time
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def by_shape(contest: Contest) -> Iterator[Row]:
    """Every shape in bfloat16, then with 8-bit caches."""
    for name, shape in SHAPES.items():
        yield from run("decode", name, shape, contest)
    for kv_name, kv_dtype in KV_DTYPES.items():
        for name, s in SHAPES.items():
            narrow = Shape(s.num_seqs, s.seq_len, s.num_heads, s.num_kv_heads, kv_dtype=kv_dtype)
            yield from run("decode", f"{name}, {kv_name} KV", narrow, contest)


def by_block_size(contest: Contest) -> Iterator[Row]:
    """64 sequences of 8k at each block size, with all peers; 8 of them, with the peers that compile once."""
    for num_seqs, beside in ((64, contest), (8, contest.without(*SLOW_TO_START))):
        for block_size in BLOCK_SIZES:
            shape = Shape(num_seqs, 8192, 32, 8, block_size=block_size)
            yield from run("block size", f"GQA {num_seqs} × 8k, block_size {block_size}", shape, beside)


def by_head_dim(contest: Contest) -> Iterator[Row]:
    """8 sequences of 8k at each head_dim, in both half precisions, with the peers that compile once."""
    contest = contest.without(*SLOW_TO_START)
    for name, dtype in DTYPES.items():
        for head_dim in HEAD_DIMS:
            shape = Shape(8, 8192, 32, 8, head_dim=head_dim, dtype=dtype, kv_dtype=dtype)
            yield from run("head dim", f"GQA 8 × 8k, head_dim {head_dim}, {name}", shape, contest)


def run(table: str, name: str, shape: Shape, contest: Contest) -> Iterator[Row]:
    case = DecodeCase(shape)
    yield from contest.rows(
        base_row(table, name, "GB/s", case.k, shape.dtype),
        case.launches(),
        lambda peer: peer.decode(case.q, case.k, case.v, case.tables, case.seq_lens, **case.options),
        case.error,
        case.gigabytes_a_second,
    )


TABLES = {"decode": by_shape, "block size": by_block_size, "head dim": by_head_dim}

if __name__ == "__main__":
    tables.main(__doc__, TABLES)
