"""paged_decode gives what dense attention gives, wherever the blocks lie and whatever lies around them."""

import pytest
import torch

import kernels
from kernels import launch
from tests.kernel_cases import (
    DTYPES,
    INF,
    NAN,
    Shape,
    assert_near,
    ids,
    make_batch,
    on_gpu,
    randn,
    run_python,
    sparse_memory,
)

SMALL = [
    *(Shape(dtype=dtype) for dtype in DTYPES),
    # The last block holds all but one token, all, and one; a table exactly as wide as that.
    Shape(lens=(3, 4, 5, 8)),
    Shape(lens=(1,), group=1, kv_heads=1, head_dim=1, block_size=1),
    Shape(lens=(7, 2), block_size=3, head_dim=17),
    Shape(lens=(9,), group=1, kv_heads=3, block_size=5),
    Shape(lens=(6,), group=3, kv_heads=1),
    Shape(lens=(6, 11), group=7, kv_heads=1, dtype=torch.float16),
    Shape(lens=(6,), group=32, kv_heads=1, head_dim=80, block_size=16),
    # Longer than one tile of 64.
    Shape(lens=(130,), kv_heads=1, block_size=16),
]


@pytest.mark.parametrize("shape", SMALL, ids=str)
def test_equals_dense_attention(shape):
    make_batch(shape).check()


@pytest.mark.parametrize("block_size", [1, 3, 4, 16])
def test_one_block_a_tile_gives_the_same_answer(block_size):
    make_batch(Shape(block_size=block_size)).check(tokens_per_tile=block_size)


def test_tile_need_not_end_where_a_block_ends():
    make_batch(Shape(lens=(14,), block_size=3)).check(tokens_per_tile=5)


@pytest.mark.parametrize("poison", [(NAN, 0.0), (0.0, NAN), (INF, INF), (-INF, -INF)], ids=str)
def test_slots_of_others_never_reach_the_output(poison):
    batch = make_batch(Shape(lens=(5, 1)), poison=poison)
    batch.check()
    batch.check(tokens_per_tile=4)


def test_foreign_zeros_do_not_take_part_in_the_softmax():
    make_batch(Shape(lens=(5, 1)), poison=(0.0, 0.0)).check()


def test_own_nan_is_shown_not_hidden():
    batch = make_batch(Shape(lens=(5,)))
    batch.v_cache[batch.block_tables[0, 1], 0, 0, 3] = NAN
    assert batch.decode()[0, :2, 3].isnan().all()
    assert batch.decode()[0, 2:].isfinite().all()


def test_empty_sequence_writes_zeros_over_what_was_there(monkeypatch):
    batch = make_batch(Shape(lens=(0, 4, 0)))
    empty = torch.empty
    # New memory is NaN here, so that zeros must be written, not found.
    monkeypatch.setattr(torch, "empty", lambda *args, **options: empty(*args, **options).fill_(NAN))
    out = batch.decode()
    assert_near(out, batch.expected)
    assert out[0].count_nonzero() == 0


def test_sequences_may_all_be_empty_and_the_table_have_no_column():
    batch = make_batch(Shape(lens=(0, 0)))
    assert batch.block_tables.shape == (2, 0)
    batch.check()


def test_no_sequences_give_an_empty_answer():
    batch = make_batch(Shape(lens=()))
    assert batch.decode().shape == (0, 4, 8)


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


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_tables_and_lengths_are_int32_or_int64(index_dtype):
    batch = make_batch(Shape(), index_dtype=index_dtype, padding=-1)
    batch.check()
    batch.seq_lens = batch.seq_lens.to(torch.int32 if index_dtype == torch.int64 else torch.int64)
    batch.check()


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


def test_scale_is_the_callers_when_given():
    batch = make_batch(Shape(lens=(6,)))
    rows = [(int(batch.block_tables[0, t // 4]), t % 4) for t in range(6)]
    k = torch.stack([batch.k_cache[at] for at in rows])
    v = torch.stack([batch.v_cache[at] for at in rows])
    for scale in (0.0, 1.5):
        assert_near(batch.decode(scale=scale), kernels.dense_attention(batch.q, k, v, scale))


def test_scores_too_large_for_exp_do_not_overflow():
    batch = make_batch(Shape(lens=(9,)))
    rows = [(int(batch.block_tables[0, t // 4]), t % 4) for t in range(9)]
    k = torch.stack([batch.k_cache[at] for at in rows])
    v = torch.stack([batch.v_cache[at] for at in rows])
    assert_near(batch.decode(scale=1000.0), kernels.dense_attention(batch.q, k, v, 1000.0))


def test_shared_blocks_are_read_by_both_sequences():
    batch = make_batch(Shape(lens=(8, 8)))
    batch.block_tables[1] = batch.block_tables[0]
    batch.q[1] = batch.q[0]
    out = batch.decode()
    assert torch.equal(out[0], out[1])


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


def around(**axes):
    """Vary one axis at a time: what two axes do together, they do in SMALL."""
    base = {"lens": (1, 15, 16, 17, 0, 300), "kv_heads": 2, "group": 4, "head_dim": 128, "block_size": 16}
    return [
        Shape(**{**base, axis: value}, dtype=dtype)
        for dtype in DTYPES
        for axis, values in axes.items()
        for value in values
    ]


WIDE = around(
    lens=[(1,), (64,), (63, 64, 65), (4097,), tuple(range(257))],
    kv_heads=[1, 3, 8, 40],
    group=[1, 2, 3, 5, 7, 8, 12, 16, 17, 32],
    head_dim=[1, 8, 16, 17, 40, 64, 80, 96, 112, 192, 256, 576],
    block_size=[1, 3, 8, 17, 32, 64, 100, 256],
)


@on_gpu
@pytest.mark.parametrize("shape", WIDE, ids=str)
def test_equals_dense_attention_over_the_wide_matrix(shape):
    batch = make_batch(shape, padding=2**31 - 1, index_dtype=torch.int32)
    batch.check()
    batch.check(tokens_per_tile=min(shape.block_size, 64))


@on_gpu
def test_graph_captured_at_one_length_replays_at_another():
    batch = make_batch(Shape(lens=(40, 200), head_dim=64, block_size=16, dtype=torch.float16))
    lens = batch.seq_lens.clone()
    batch.decode()
    batch.seq_lens.copy_(ids(1, 0))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = batch.decode()
    batch.seq_lens.copy_(lens)
    graph.replay()
    assert_near(out, batch.expected)


@on_gpu
def test_more_sequences_than_a_grid_axis_of_65535_has_programs():
    num_seqs = 70_000
    k_cache = randn(1, 4, 1, 16)
    q = randn(1, 1, 16).expand(num_seqs, 1, 16)
    table, lens = ids(0).expand(num_seqs, 1), ids(4).expand(num_seqs)
    out = kernels.paged_decode(q, k_cache, k_cache, table, lens)
    assert_near(out, kernels.dense_attention(q[:1], k_cache[0], k_cache[0]).expand(num_seqs, 1, 16))
