"""paged_prefill gives what dense attention gives to many new tokens, wherever the blocks lie."""

import pytest
import torch

import kernels
from tests.kernel_cases import DTYPES, NAN, Shape, assert_near, ids, make_batch, on_gpu
from tests.kernels.decode.test_paged_decode import around
from tests.kernels.prefill.prefill_cases import make_prefill

SMALL = [
    *((Shape(dtype=dtype, kv_heads=1), (3, 0, 12)) for dtype in DTYPES),
    # The last block holds all but one token, all, and one; a table exactly as wide as that.
    (Shape(lens=(3, 4, 5, 8), kv_heads=1), (3, 2, 5, 1)),
    (Shape(lens=(1,), group=1, kv_heads=1, head_dim=1, block_size=1), (1,)),
    (Shape(lens=(7, 2), group=1, block_size=3, head_dim=17), (4, 2)),
    (Shape(lens=(9,), group=1, kv_heads=3, block_size=5), (9,)),
    (Shape(lens=(6, 11), group=7, kv_heads=1, dtype=torch.float16), (6, 2)),
    (Shape(lens=(6,), group=32, kv_heads=1, head_dim=80, block_size=16), (2,)),
    # Tiles before the causal diagonal, and several pieces.
    (Shape(lens=(100,), kv_heads=1, block_size=16), (21,)),
    # More queries than keys: the first see nothing.
    (Shape(lens=(2, 0), kv_heads=1), (4, 3)),
]


@pytest.mark.parametrize(("shape", "query_lens"), SMALL, ids=str)
def test_equals_dense_attention(shape, query_lens):
    prefill = make_prefill(shape, query_lens)
    prefill.check()
    assert_near(prefill.run_reference(), prefill.dense())


@pytest.mark.parametrize("block_size", [3, 4, 16])
def test_one_block_a_tile_gives_the_same_answer(block_size):
    make_prefill(Shape(lens=(17, 5), kv_heads=1, block_size=block_size), (9, 5)).check(tokens_per_tile=block_size)


def test_rows_after_the_last_sequence_are_zeros_written_over_what_was_there(monkeypatch):
    prefill = make_prefill(Shape(lens=(5, 0), kv_heads=1), (3, 0), padding_rows=3)
    empty = torch.empty
    # New memory is NaN here, so that zeros must be written, not found.
    monkeypatch.setattr(
        torch, "empty", lambda *args, **how: empty(*args, **how).fill_(NAN if "dtype" not in how else -1)
    )
    prefill.check()
    assert prefill.run()[3:].count_nonzero() == 0


def test_no_queries_give_an_empty_answer_and_no_sequences_zeros():
    assert make_prefill(Shape(lens=(5, 0)), (0, 0)).run().shape == (0, 4, 8)
    assert make_prefill(Shape(lens=()), ()).run().shape == (0, 4, 8)
    assert make_prefill(Shape(lens=()), (), padding_rows=2).run().tolist() == [[[0.0] * 8] * 4] * 2


def test_a_whole_prompt_is_its_chunks_and_its_tokens_one_by_one():
    whole = make_prefill(Shape(lens=(23,), kv_heads=1, block_size=4))
    batch, cache = whole.batch, (whole.batch.k_cache, whole.batch.v_cache)
    together = whole.run()
    done = 0
    for chunk in (7, 1, 9, 6):
        q = batch.q[done : done + chunk]
        done += chunk
        out = kernels.paged_prefill(q, *cache, batch.block_tables, ids(done), ids(0, chunk))
        assert_near(out, together[done - chunk : done])
    each = kernels.paged_decode(
        batch.q, *cache, batch.block_tables.expand(23, -1), torch.arange(1, 24, device=q.device)
    )
    assert_near(each, together)


def test_a_batch_of_one_query_each_is_a_decode_step():
    batch = make_batch(Shape(lens=(5, 1, 12), kv_heads=1))
    out = kernels.paged_prefill(
        **make_prefill(Shape(lens=(5, 1, 12), kv_heads=1), (1, 1, 1)).arguments() | {"q": batch.q}
    )
    assert_near(out, batch.expected)


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_tables_lengths_and_starts_are_int32_or_int64(index_dtype):
    prefill = make_prefill(Shape(lens=(5, 6), kv_heads=1), (5, 2), index_dtype=index_dtype)
    prefill.check()
    prefill.query_start_loc = prefill.query_start_loc.to(torch.int32 if index_dtype == torch.int64 else torch.int64)
    prefill.check()


def test_scale_is_the_callers_even_when_negative_or_huge():
    prefill = make_prefill(Shape(lens=(40,), kv_heads=1), (3,))
    for scale in (0.0, 1.5, -1.5, 1000.0):
        prefill.check(scale=scale)


def test_own_nan_is_shown_not_hidden():
    prefill = make_prefill(Shape(lens=(5,)), (2,))
    prefill.batch.v_cache[prefill.batch.block_tables[0, 0], 1, 0, 3] = NAN
    out = prefill.run()
    assert out[:, :2, 3].isnan().all()
    assert out[:, 2:].isfinite().all()


def queries_of(lens):
    """All tokens of one sequence, half of the next, one of the next, and so on."""
    return [(n, (n + 1) // 2, min(n, 1))[i % 3] for i, n in enumerate(lens)]


WIDE = around(
    lens=[(1,), (64,), (63, 64, 65), (4097,), (1, 1000, 40, 0, 130), tuple(range(0, 257, 3))],
    kv_heads=[1, 3],
    group=[1, 3, 7, 8, 17, 32],
    head_dim=[1, 17, 64, 80, 96, 192, 256, 576],
    block_size=[1, 3, 17, 64, 100, 128, 256],
)


@on_gpu
@pytest.mark.parametrize("shape", WIDE, ids=str)
def test_equals_dense_attention_over_the_wide_matrix(shape):
    prefill = make_prefill(shape, queries_of(shape.lens), padding=2**31 - 1, index_dtype=torch.int32, padding_rows=2)
    prefill.check()
    if shape.head_dim == 128:
        prefill.check(tokens_per_tile=min(shape.block_size, 64))


@on_gpu
@pytest.mark.parametrize("window", [None, 100])
@pytest.mark.parametrize("block_size", [16, 128])
def test_graph_captured_at_one_batch_replays_at_another(window, block_size):
    prefill = make_prefill(Shape((3000, 700), 2, 4, 64, block_size, torch.float16), (200, 312))
    batch, lens, starts = prefill.batch, prefill.batch.seq_lens.clone(), prefill.query_start_loc.clone()
    prefill.run(window=window)
    batch.seq_lens.copy_(ids(1, 0))
    prefill.query_start_loc.copy_(ids(0, 1, 1))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = prefill.run(window=window)
    for now, where in (
        (lens, starts),
        (ids(0, 512), ids(0, 0, 512)),
        (ids(2999, 1), ids(0, 511, 512)),
        (lens, ids(0, 100, 101)),
    ):
        batch.seq_lens.copy_(now)
        prefill.query_start_loc.copy_(where)
        graph.replay()
        assert_near(out, prefill.dense(window=window))
