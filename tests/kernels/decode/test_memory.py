"""paged_decode reads its own slots and table entries, wherever they lie, and nothing else."""

import pytest
import torch

import kernels
from kernels import launch
from tests.kernel_cases import INF, NAN, Shape, assert_near, ids, make_batch, randn, run_python, sparse_memory


@pytest.mark.parametrize("poison", [(NAN, 0.0), (0.0, NAN), (INF, INF), (-INF, -INF)], ids=str)
def test_slots_of_others_never_reach_the_output(poison):
    batch = make_batch(Shape(lens=(5, 1)), poison=poison)
    batch.check()
    batch.check(tokens_per_tile=4)


def test_foreign_zeros_do_not_take_part_in_the_softmax():
    make_batch(Shape(lens=(5, 1)), poison=(0.0, 0.0)).check()


@pytest.mark.parametrize("padding", [-1, 2**31 - 1, -(2**31), 0], ids=["minus one", "huge", "lowest", "stale"])
def test_entries_past_the_last_block_are_never_followed(padding):
    make_batch(Shape(lens=(4, 9, 0)), padding=padding, spare_columns=2).check()


def test_tail_never_reads_the_table_past_its_row():
    """The table is a window into a wider one: what lies right of a row leads out of all memory."""
    batch = make_batch(Shape(lens=(4, 8, 3)))
    wide = torch.full((3, 70), 2**62, device=kernels.device())
    wide[:, :2] = batch.block_tables
    batch.block_tables = wide[:, :2]
    batch.check()


AT_THE_EDGE = """
import ctypes, mmap, torch
from tests.kernel_cases import Shape, make_batch

def at_the_edge(tensor):
    pages = -(-tensor.nbytes // mmap.PAGESIZE)
    memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
    end = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + pages * mmap.PAGESIZE
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(end), mmap.PAGESIZE, 0) == 0
    start = pages * mmap.PAGESIZE - tensor.nbytes
    moved = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel(), offset=start).view(tensor.shape)
    return moved.copy_(tensor)

for shape in (Shape(lens=(5,)), Shape(lens=(4, 9)), Shape(lens=(7,), block_size=3, head_dim=5)):
    batch = make_batch(shape)
    for name in ("q", "k_cache", "v_cache", "block_tables", "seq_lens"):
        setattr(batch, name, at_the_edge(getattr(batch, name)))
    batch.check()
    batch.check(tokens_per_tile=shape.block_size)
"""


@pytest.mark.skipif(not launch.INTERPRETED, reason="guards CPU memory")
def test_not_even_a_masked_lane_reads_past_the_end_of_a_tensor():
    """Behind each tensor lies a page that may not be read; in a process of its own, as a wrong read ends it."""
    done = run_python(AT_THE_EDGE)
    assert done.returncode == 0, done.stderr[-2000:] or f"ended by signal {-done.returncode}"


def test_tables_and_lengths_may_have_any_strides():
    batch = make_batch(Shape())
    batch.block_tables = batch.block_tables.t().contiguous().t()
    batch.seq_lens = torch.stack([batch.seq_lens, batch.seq_lens * 0 + 99], dim=1)[:, 0]
    batch.check()


def test_k_and_v_may_share_one_interleaved_pool():
    pool = torch.empty(8, 2, 4, 2, 8, device=kernels.device())
    make_batch(Shape(), caches=(pool[:, 0], pool[:, 1])).check()
    by_head = torch.empty(8, 2, 4, 16, device=kernels.device()).transpose(1, 2)
    make_batch(Shape(), caches=(by_head[..., :8], by_head[..., 8:])).check()
    k_by_dim = torch.empty(2, 8, 8, 4, device=kernels.device()).permute(1, 3, 0, 2)
    make_batch(Shape(), caches=(k_by_dim, torch.empty(8, 4, 2, 8, device=kernels.device()))).check()


def test_q_may_be_a_view_of_a_fused_projection():
    batch = make_batch(Shape())
    qkv = torch.full((3, 4 + 2 + 2, 8), NAN, device=kernels.device())
    qkv[:, :4] = batch.q
    batch.q = qkv[:, :4]
    assert not batch.q.is_contiguous()
    batch.check()


# Each axis in turn lies so far apart that index times stride passes 2^31 elements; "block" passes id 65,535 as well.
FAR = {
    "block": ((70_000, 2, 2, 8), (32_768, 16, 8, 1), 69_998),
    "token": ((3, 3, 2, 8), (16, 1_100_000_000, 8, 1), 1),
    "head": ((3, 3, 3, 8), (24, 8, 1_100_000_000, 1), 1),
    "dim": ((3, 2, 2, 8), (8, 4, 2, 320_000_000), 1),
}


@pytest.mark.parametrize("axis", FAR)
def test_offsets_past_two_billion_elements_do_not_wrap(axis, tmp_path):
    size, strides, first_block = FAR[axis]
    reach = 1 + sum((n - 1) * stride for n, stride in zip(size, strides, strict=True))
    memory = sparse_memory(tmp_path, reach + 65_536)
    k_cache, v_cache = memory.as_strided(size, strides), memory[4096:].as_strided(size, strides)
    _, block_size, kv_heads, head_dim = size
    k, v = (randn(block_size + 1, kv_heads, head_dim, dtype=torch.float16, seed=seed) for seed in (1, 2))
    for t in range(block_size + 1):
        k_cache[first_block + t // block_size, t % block_size] = k[t]
        v_cache[first_block + t // block_size, t % block_size] = v[t]
    q = randn(1, kv_heads, head_dim, dtype=torch.float16)
    table = ids(first_block, first_block + 1)[None]
    out = kernels.paged_decode(q, k_cache, v_cache, table, ids(block_size + 1))
    assert_near(out, kernels.dense_attention(q, k, v))


def test_queries_past_two_billion_elements_do_not_wrap(tmp_path):
    batch = make_batch(Shape(lens=(1, 2, 3), dtype=torch.float16))
    far = sparse_memory(tmp_path, 2_200_000_100).as_strided((3, 4, 8), (1_100_000_000, 8, 1))
    far.copy_(batch.q)
    batch.q = far
    batch.check()
