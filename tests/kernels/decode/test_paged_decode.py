"""paged_decode gives what dense attention gives, wherever the blocks lie and whatever lies around them."""

import pytest
import torch

import kernels
from tests.kernel_cases import DTYPES, NAN, Shape, assert_near, ids, make_batch, on_gpu, randn

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


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_tables_and_lengths_are_int32_or_int64(index_dtype):
    batch = make_batch(Shape(), index_dtype=index_dtype, padding=-1)
    batch.check()
    batch.seq_lens = batch.seq_lens.to(torch.int32 if index_dtype == torch.int64 else torch.int64)
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
