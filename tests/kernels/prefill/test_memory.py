"""paged_prefill reads its own slots and table entries, wherever they lie, and nothing else."""

import pytest
import torch

import kernels
from kernels import launch
from tests.kernel_cases import INF, NAN, Shape, assert_near, ids, randn, run_python, sparse_memory
from tests.kernels.decode.test_memory import AT_THE_EDGE, FAR
from tests.kernels.prefill.prefill_cases import make_prefill


@pytest.mark.parametrize("poison", [(NAN, 0.0), (0.0, NAN), (INF, INF), (0.0, 0.0)], ids=str)
def test_slots_of_others_never_reach_the_output(poison):
    prefill = make_prefill(Shape(lens=(5, 9), kv_heads=1), (5, 2), poison=poison)
    prefill.check()
    prefill.check(tokens_per_tile=4)


@pytest.mark.parametrize("padding", [2**31 - 1, 0], ids=["huge", "stale"])
def test_entries_past_the_last_block_are_never_followed(padding):
    make_prefill(Shape(lens=(4, 9, 0), kv_heads=1), (4, 1, 0), padding=padding, spare_columns=2).check()


def test_blocks_that_left_every_window_are_never_followed():
    """A cache that drops what no query sees any more may write anything over its first entries."""
    prefill = make_prefill(Shape(lens=(21,), kv_heads=1), (3,))
    wanted = prefill.dense(window=6)
    table = prefill.batch.block_tables
    # The first query, at 18, sees 13 to 18: blocks 0 to 2 are gone.
    prefill.batch.k_cache[table[0, :3]] = NAN
    prefill.batch.v_cache[table[0, :3]] = NAN
    assert_near(prefill.run(window=6), wanted)
    assert_near(prefill.run(window=6, tokens_per_tile=4), wanted)
    assert_near(prefill.run_reference(window=6), wanted)


def test_tail_never_reads_the_table_past_its_row():
    """The table is a window into a wider one: what lies right of a row leads out of all memory."""
    prefill = make_prefill(Shape(lens=(4, 8, 3), kv_heads=1), (2, 8, 1))
    wide = torch.full((3, 70), 2**62, device=kernels.device())
    wide[:, :2] = prefill.batch.block_tables
    prefill.batch.block_tables = wide[:, :2]
    prefill.check()


PREFILL_AT_THE_EDGE = (
    AT_THE_EDGE.split("for shape in")[0]
    + """
from tests.kernels.prefill.prefill_cases import make_prefill

for shape, query_lens in ((Shape(lens=(5,), kv_heads=1), (2,)), (Shape((4, 7), 1, 3, 5, 3), (4, 3))):
    prefill = make_prefill(shape, query_lens)
    for name in ("q", "k_cache", "v_cache", "block_tables", "seq_lens"):
        setattr(prefill.batch, name, at_the_edge(getattr(prefill.batch, name)))
    prefill.query_start_loc = at_the_edge(prefill.query_start_loc)
    prefill.check()
    prefill.check(tokens_per_tile=shape.block_size)
"""
)


@pytest.mark.skipif(not launch.INTERPRETED, reason="guards CPU memory")
def test_not_even_a_masked_lane_reads_past_the_end_of_a_tensor():
    """Behind each tensor lies a page that may not be read; in a process of its own, as a wrong read ends it."""
    done = run_python(PREFILL_AT_THE_EDGE)
    assert done.returncode == 0, done.stderr[-2000:] or f"ended by signal {-done.returncode}"


def test_tables_lengths_and_starts_may_have_any_strides():
    prefill = make_prefill(Shape(lens=(5, 9), kv_heads=1), (2, 1))
    prefill.batch.block_tables = prefill.batch.block_tables.t().contiguous().t()
    prefill.batch.seq_lens = torch.stack([prefill.batch.seq_lens] * 2, dim=1)[:, 0]
    prefill.query_start_loc = torch.stack([prefill.query_start_loc] * 2, dim=1)[:, 0]
    prefill.check()


def test_k_and_v_may_share_one_interleaved_pool():
    pool = torch.empty(8, 2, 4, 2, 8, device=kernels.device())
    make_prefill(Shape(lens=(5, 6)), (3, 2), caches=(pool[:, 0], pool[:, 1])).check()
    by_head = torch.empty(8, 2, 4, 16, device=kernels.device()).transpose(1, 2)
    make_prefill(Shape(lens=(5, 6)), (3, 2), caches=(by_head[..., :8], by_head[..., 8:])).check()
    k_by_dim = torch.empty(2, 8, 8, 4, device=kernels.device()).permute(1, 3, 0, 2)
    other = torch.empty(8, 4, 2, 8, device=kernels.device())
    prefill = make_prefill(Shape(lens=(5, 6)), (3, 2), caches=(k_by_dim, other))
    out = prefill.run()
    prefill.batch.k_cache = k_by_dim.contiguous()
    assert_near(out, prefill.dense())


def test_q_may_be_a_view_of_a_fused_projection():
    prefill = make_prefill(Shape(lens=(5, 3)))
    qkv = torch.full((8, 4 + 2 + 2, 8), NAN, device=kernels.device())
    qkv[:, :4] = prefill.batch.q
    prefill.batch.q = qkv[:, :4]
    assert not prefill.batch.q.is_contiguous()
    prefill.check()


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
    q = randn(2, kv_heads, head_dim, dtype=torch.float16)
    table = ids(first_block, first_block + 1)[None]
    out = kernels.paged_prefill(q, k_cache, v_cache, table, ids(block_size + 1), ids(0, 2))
    assert_near(out, kernels.dense_attention(q, k, v))


def test_queries_past_two_billion_elements_do_not_wrap(tmp_path):
    prefill = make_prefill(Shape(lens=(1, 2), dtype=torch.float16))
    far = sparse_memory(tmp_path, 2_200_000_100).as_strided((3, 4, 8), (1_100_000_000, 8, 1))
    far.copy_(prefill.batch.q)
    prefill.batch.q = far
    prefill.check()
