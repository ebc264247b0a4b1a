"""A replayed decode gives what an eager one gives: at other lengths, other tables, other queries."""

import pytest
import torch

import kernels
from kernels import reference
from pagedviz.runtime.computing import decode_graph
from pagedviz.runtime.computing.decode_graph import DecodeGraph, DecodeGraphs
from tests.kernel_cases import DTYPES, Shape, assert_near, assert_same_bits, make_batch, on_gpu, quantize, randn


@pytest.fixture(autouse=True)
def captured_at_the_second_call(monkeypatch):
    monkeypatch.setattr(decode_graph, "EAGER_CALLS", 1)


SHAPE = Shape(lens=(130, 0, 77, 6), head_dim=64, block_size=16)


def arguments(batch):
    return batch.q, batch.k_cache, batch.v_cache, batch.block_tables, batch.seq_lens


def test_without_compiled_kernels_every_call_goes_to_the_kernel():
    batch, graphs = make_batch(Shape()), DecodeGraphs()
    outs = [graphs(*arguments(batch), tokens_per_tile=4) for _ in range(3)]
    for out in outs:
        assert_near(out, batch.expected)
    if kernels.device().type == "cpu":
        assert not graphs.seen


@on_gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_eager_captured_replayed_and_reference_agree_on_the_same_inputs(dtype):
    """The interpreter is held to the same numbers by the test above, on machines that have it."""
    batch, graphs = make_batch(Shape(lens=(130, 0, 77), head_dim=64, block_size=16, dtype=dtype)), DecodeGraphs()
    outs = [graphs(*arguments(batch)) for _ in range(4)]
    assert [type(graph) for graph in graphs.seen.values()] == [DecodeGraph]
    for out in outs:
        assert_near(out, batch.expected)
        assert_same_bits(out, outs[0])
    assert_near(outs[-1], reference.paged_decode(*arguments(batch)))


@on_gpu
@pytest.mark.parametrize("options", [{}, {"window": 40}, {"softcap": 2.0}, {"tokens_per_tile": 16}], ids=str)
def test_captured_at_short_lengths_it_is_right_at_longer_ones_and_other_tables(options):
    batch, graphs = make_batch(SHAPE), DecodeGraphs()
    longest = batch.seq_lens
    dense = {name: value for name, value in options.items() if name != "tokens_per_tile"}
    for lens in ((1, 0, 1, 1), (3, 0, 1, 0), (17, 0, 16, 6), (130, 0, 77, 6), (0, 0, 0, 0), (129, 0, 2, 5)):
        batch.seq_lens = torch.tensor(lens, device="cuda").minimum(longest)
        assert_near(graphs(*arguments(batch), **options), batch.dense(**dense))
    # Rows change places: other tables, lengths and queries in the same memory.
    for name in ("q", "block_tables"):
        setattr(batch, name, getattr(batch, name).flip(0))
    batch.seq_lens = longest.flip(0)
    assert_near(graphs(*arguments(batch), **options), batch.dense(**dense))
    assert len(graphs.seen) == 1


@on_gpu
def test_what_is_written_into_the_cache_later_is_seen():
    batch, graphs = make_batch(Shape(lens=(33,), block_size=16, head_dim=64)), DecodeGraphs()
    for _ in range(3):
        graphs(*arguments(batch))
    batch.v_cache[batch.block_tables[0, 1]] += 1.0
    assert_near(graphs(*arguments(batch)), batch.dense())


@on_gpu
def test_scales_lie_where_they_lay_and_may_change():
    batch, graphs = make_batch(SHAPE), DecodeGraphs()
    scales = quantize(batch, torch.int8, "head")
    for _ in range(3):
        assert_near(graphs(*arguments(batch), **scales), batch.dense(**scales))
        scales["k_scale"] *= 1.5
    other = {name: scale.clone() for name, scale in scales.items()}
    other["v_scale"] *= 3
    assert_near(graphs(*arguments(batch), **other), batch.dense(**other))
    assert len(graphs.seen) == 2


@on_gpu
def test_a_result_is_not_overwritten_by_the_next_call():
    batch, graphs = make_batch(SHAPE), DecodeGraphs()
    for _ in range(2):
        graphs(*arguments(batch))
    first = graphs(*arguments(batch))
    kept = first.clone()
    batch.q = randn(*batch.q.shape, seed=9)
    graphs(*arguments(batch))
    assert_same_bits(first, kept)


@on_gpu
def test_other_caches_dtypes_and_strides_are_other_graphs_and_no_more_than_the_bound_are_kept(monkeypatch):
    monkeypatch.setattr(decode_graph, "MOST_GRAPHS", 3)
    graphs = DecodeGraphs()
    batches = [make_batch(Shape(lens=(9,), head_dim=dim)) for dim in (8, 16)]
    batches += [make_batch(Shape(lens=(9,))), make_batch(Shape(lens=(9,)), index_dtype=torch.int32)]
    apart = make_batch(Shape(lens=(9,)))
    apart.k_cache = torch.stack([apart.k_cache, apart.v_cache], dim=2)[:, :, 0]
    for _ in range(2):
        for batch in (*batches, apart):
            for _ in range(3):
                assert_near(graphs(*arguments(batch)), batch.expected)
            assert len(graphs.seen) <= 3
    queries = [batches[-1].q, torch.stack([batches[-1].q] * 2, dim=1)[:, 0]]
    for q in queries * 2:
        batches[-1].q = q
        assert_near(graphs(*arguments(batches[-1])), batches[-1].expected)


@on_gpu
def test_the_pool_of_graphs_that_are_all_gone_is_not_captured_into(monkeypatch):
    """A long run drops one kind for the next, and may have none left when another has come often enough."""
    monkeypatch.setattr(decode_graph, "MOST_GRAPHS", 1)
    graphs = DecodeGraphs()
    for dim in (8, 16, 32, 8):
        batch = make_batch(Shape(lens=(9,), head_dim=dim))
        for _ in range(3):
            assert_near(graphs(*arguments(batch)), batch.expected)
