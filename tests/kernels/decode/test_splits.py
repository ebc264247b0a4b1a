"""Several programs may split a sequence between them: the answer is the same, whatever is left for each to do."""

import math
import sys

import pytest
import torch

import kernels
from kernels import launch
from kernels.decode import plan as decode_plan
from kernels.sizes import MOST_SPLITS
from tests.kernel_cases import DTYPES, NAN, Shape, assert_near, ids, make_batch, on_gpu

pytestmark = pytest.mark.skipif(not launch.USES_TRITON, reason="needs Triton")


@pytest.fixture
def cut(monkeypatch):
    """Change what the plan says: cut(num_splits=3, tile_tokens=16)."""
    planned = decode_plan.plan

    def change(**changes):
        monkeypatch.setattr(decode_plan, "plan", lambda *shape: planned(*shape)._replace(**changes))

    return change


@pytest.fixture
def new_memory_is_nan(monkeypatch):
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *args, **options: empty(*args, **options).fill_(NAN))


def test_splits_give_what_dense_attention_gives(cut):
    cut(num_splits=3, tile_tokens=16)
    make_batch(Shape(lens=(100, 37), kv_heads=2, group=3, block_size=16)).check()


def test_a_split_may_end_one_token_before_at_and_after_a_tile(cut, new_memory_is_nan):
    cut(num_splits=3, tile_tokens=16)
    make_batch(Shape(lens=(15, 16, 17, 31, 32, 33, 47, 48, 49, 96, 97), kv_heads=1, block_size=5)).check()


def test_a_split_with_nothing_to_do_weighs_nothing(cut, new_memory_is_nan):
    cut(num_splits=7, tile_tokens=16)
    make_batch(Shape(lens=(5, 17), kv_heads=1)).check()


def test_an_empty_sequence_gives_zeros_with_splits_too(cut, new_memory_is_nan):
    cut(num_splits=4, tile_tokens=16)
    batch = make_batch(Shape(lens=(0, 40, 0)))
    batch.check()
    assert batch.decode()[0].count_nonzero() == 0


@pytest.mark.parametrize("num_splits", [1, 4])
def test_masked_lanes_and_empty_splits_lose_to_any_score_however_low(cut, num_splits):
    """A mask of -1e30 would win against these scores of -8e30, and the answer would be of tokens that are not there."""
    cut(num_splits=num_splits, tile_tokens=16)
    batch = make_batch(Shape(lens=(5, 13), kv_heads=1))
    batch.q.fill_(1.0)
    batch.k_cache.fill_(-1.0)
    out = batch.decode(scale=1e30)
    assert_near(out, batch.dense(scale=1e30))


def test_own_nan_passes_through_the_join(cut):
    cut(num_splits=3, tile_tokens=16)
    batch = make_batch(Shape(lens=(60,)))
    batch.k_cache[batch.block_tables[0, 1], 0, 0] = NAN
    out = batch.decode()
    assert out[0, :2].isnan().all()
    assert out[0, 2:].isfinite().all()


def test_poison_and_traps_stay_outside_with_splits(cut):
    cut(num_splits=5, tile_tokens=16)
    make_batch(Shape(lens=(70, 3)), padding=2**31 - 1, spare_columns=9).check()


def test_window_and_splits_share_only_what_the_window_shows(cut):
    cut(num_splits=3, tile_tokens=16)
    batch = make_batch(Shape(lens=(100, 20), kv_heads=1, block_size=16))
    for window in (1, 33, 99, 101):
        batch.check_options(window=window)


def test_join_weighs_each_part_by_its_share():
    """The docstring's example: partial=[1, 5], lse=[0, 1] -> 11 / 3."""
    from kernels.decode.combine_splits import combine_splits

    where = kernels.device()
    out = torch.full((2, 1, 1), NAN, device=where)
    partial = torch.tensor([[1.0, 5.0], [0.0, 0.0]], device=where).view(2, 2, 1, 1)
    lse = torch.tensor([[0.0, 1.0], [-math.inf, -math.inf]], device=where).view(2, 2, 1)
    combine_splits(out, partial, lse)
    assert out.flatten().tolist() == pytest.approx([11 / 3, 0.0])


def test_one_block_a_tile_is_never_split(monkeypatch):
    """The app shows one program per sequence and KV head taking the blocks in order."""

    def joined(*_):
        raise AssertionError("a split")

    monkeypatch.setattr(sys.modules["kernels.decode.paged_decode"], "combine_splits", joined)
    batch = make_batch(Shape(lens=(3,), kv_heads=1), spare_columns=400)
    with pytest.raises(AssertionError, match="a split"):
        batch.decode()
    batch.check(tokens_per_tile=4)


def test_plan_is_made_of_shapes_alone():
    """The docstring's example, then its limits: a split has two tiles at least, and full waves need no splits."""
    assert decode_plan.plan(8, 8, 16, 128, 2, 8192).num_splits == 4
    assert decode_plan.plan(1, 1, 16, 128, 2, 10**6).num_splits == MOST_SPLITS
    assert decode_plan.plan(1, 8, 16, 128, 2, 4 * 64).num_splits == 2
    assert decode_plan.plan(1, 8, 16, 128, 2, 0).num_splits == 1
    assert decode_plan.plan(512, 1, 16, 128, 2, 8192).num_splits == 1
    assert decode_plan.plan(256, 8, 16, 128, 2, 1024).num_splits == 1


def test_plan_splits_a_batch_that_would_leave_most_of_its_second_wave_empty():
    """640 programs in 528 slots are two waves of 64 tiles; split in four, they are five waves of 16."""
    assert decode_plan.plan(80, 8, 16, 128, 2, 4096).num_splits == 4


@on_gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("lens", "kv_heads", "group", "head_dim"),
    [
        ((8192,), 8, 4, 128),
        ((1, 5000, 0, 2047, 2048, 2049), 2, 5, 128),
        ((3000, 17), 1, 32, 64),
        ((2500, 640), 4, 1, 80),
        ((4097, 1), 2, 7, 256),
        ((1500,), 1, 8, 576),
    ],
)
def test_splits_as_planned_equal_dense_attention(dtype, lens, kv_heads, group, head_dim):
    batch = make_batch(Shape(lens, kv_heads, group, head_dim, block_size=16, dtype=dtype), padding=2**31 - 1)
    batch.check()
    batch.check_options(window=1000, softcap=20.0)


@on_gpu
@pytest.mark.parametrize("window", [None, 100])
def test_graph_captured_at_one_length_replays_at_another_with_splits(window):
    batch = make_batch(Shape(lens=(3000, 700), head_dim=64, block_size=16, dtype=torch.float16))
    lens = batch.seq_lens.clone()
    batch.decode(window=window)
    batch.seq_lens.copy_(ids(1, 0))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = batch.decode(window=window)
    for now in (lens, ids(0, 700), ids(2999, 1), ids(64, 0), lens):
        batch.seq_lens.copy_(now)
        graph.replay()
        assert_near(out, batch.dense(window=window))
