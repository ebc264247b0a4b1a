"""The work list is every query once, longest first; its order, and splits between programs, change no answer."""

import sys

import pytest
import torch

import kernels
from kernels import launch
from kernels.prefill import plan as prefill_plan
from tests.kernel_cases import DTYPES, NAN, Shape, assert_near, ids, make_batch, on_gpu
from tests.kernels.prefill.prefill_cases import cut, make_prefill, starts_of

pytestmark = pytest.mark.skipif(not launch.USES_TRITON, reason="needs Triton")


def listed(query_lens, lens, num_tokens, piece):
    """The work list in plain Python: a row a piece, then rows that no sequence needs."""
    cached = [n - count for n, count in zip(lens, query_lens, strict=True)]
    counts = [*query_lens, num_tokens - sum(query_lens)]
    cached.append(-counts[-1])
    rows = [
        (
            -(cached[seq] + first + piece),
            seq,
            starts_of(counts)[seq] + first,
            min(piece, count - first),
            cached[seq] + first,
        )
        for seq, count in enumerate(counts)
        for first in range(0, count, piece)
    ]
    return [list(row[1:]) for row in sorted(rows)]


@pytest.mark.parametrize(
    ("query_lens", "lens", "padding", "piece"),
    [
        ((3, 1), (3, 9), 0, 2),
        ((5, 0, 7, 1), (50, 0, 7, 900), 3, 1),
        ((5, 0, 7, 1), (50, 0, 7, 900), 3, 4),
        ((0, 0), (4, 0), 2, 2),
        ((3, 3, 2), (5, 5, 4), 0, 1),
        ((9, 4), (2, 1), 0, 2),
        ((80,), (81,), 1, 1),
        ((1,) * 66, tuple(range(1, 67)), 1, 2),
    ],
    ids=[
        "docstring",
        "ragged",
        "longer pieces",
        "only padding",
        "ties",
        "more queries than keys",
        "many",
        "many sequences",
    ],
)
def test_work_list_is_every_query_once_longest_first(query_lens, lens, padding, piece):
    from kernels.prefill.work import list_pieces

    num_tokens = sum(query_lens) + padding
    starts = ids(*starts_of(query_lens), dtype=torch.int32)
    pieces = list_pieces(ids(*lens, dtype=torch.int32), starts, num_tokens, piece).tolist()
    wanted = listed(query_lens, lens, num_tokens, piece)
    assert pieces[: len(wanted)] == wanted
    assert all(row == [0, 0, 0, -1] for row in pieces[len(wanted) :])
    assert len(pieces) <= num_tokens


def test_order_of_the_work_list_changes_nothing(monkeypatch):
    prefill = make_prefill(Shape(lens=(20, 5, 9), kv_heads=1), (20, 1, 3), padding_rows=2)
    module = sys.modules["kernels.prefill.paged_prefill"]
    in_order = module.list_pieces
    out = prefill.run()
    monkeypatch.setattr(module, "list_pieces", lambda *how: in_order(*how).flip(0).contiguous())
    assert torch.equal(prefill.run(), out)


@pytest.fixture
def new_memory_is_nan(monkeypatch):
    empty = torch.empty

    def poisoned(*args, **how):
        made = empty(*args, **how)
        return made.fill_(NAN) if made.is_floating_point() else made

    monkeypatch.setattr(torch, "empty", poisoned)


def test_splits_give_what_dense_attention_gives(monkeypatch, new_memory_is_nan):
    cut(monkeypatch, num_splits=3, tile_tokens=16)
    prefill = make_prefill(Shape(lens=(100, 37, 0, 5), kv_heads=1, group=3, block_size=16), (2, 4, 0, 5))
    prefill.check()
    prefill.check(window=40)


def test_splits_with_nothing_to_do_weigh_nothing(monkeypatch, new_memory_is_nan):
    cut(monkeypatch, num_splits=5, tile_tokens=16)
    prefill = make_prefill(Shape(lens=(5, 17, 0), kv_heads=1), (2, 1, 1), padding_rows=2)
    prefill.check()
    assert prefill.run()[3:].count_nonzero() == 0


def test_one_block_a_tile_is_never_split(monkeypatch):
    def joined(*_):
        raise AssertionError("a split")

    cut(monkeypatch, num_splits=2)
    monkeypatch.setattr(sys.modules["kernels.prefill.paged_prefill"], "combine_splits", joined)
    prefill = make_prefill(Shape(lens=(9,), kv_heads=1), (2,))
    with pytest.raises(AssertionError, match="a split"):
        prefill.run()
    prefill.check(tokens_per_tile=4)


def test_plan_is_made_of_shapes_alone():
    """The docstring's example, then its limits: a split has two tiles at least, and a wide batch has no splits."""
    plan = prefill_plan.plan
    assert plan(80, 16, 8, 4, 128, 2, 16, 8197)[:3] == (32, 128, 1)
    assert plan(8192, 1, 8, 4, 128, 2, 16, 8192)[:3] == (128, 128, 1)
    assert plan(128, 1, 8, 4, 128, 2, 16, 32896)[:3] == (128, 128, 4)
    assert plan(1, 1, 1, 1, 128, 2, 16, 4 * 64).num_splits == 2
    assert plan(1, 1, 1, 1, 128, 2, 16, 0).num_splits == 1
    assert plan(4, 1, 1, 100, 128, 2, 16, 8192).tile_rows == 128
    assert plan(4096, 1, 8, 4, 1024, 2, 16, 8192).tile_rows == 32
    # Tiles that are boxes of a block of 64, and a long prompt among decode steps.
    assert plan(8192, 1, 8, 4, 128, 2, 64, 8192)[:2] == (64, 64)
    assert plan(63 + 2048, 64, 8, 4, 128, 2, 16, 8192)[:3] == (64, 64, 1)


@on_gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("block_size", [16, 128])
@pytest.mark.parametrize(
    ("lens", "query_lens", "kv_heads", "group", "head_dim"),
    [
        ((8192,), (8,), 8, 4, 128),
        ((1, 5000, 0, 2047, 2048, 2049), (1, 5, 0, 4, 3, 2), 2, 5, 128),
        ((3000, 17), (40, 17), 1, 32, 64),
        ((2500, 640), (3, 3), 4, 1, 80),
        ((4097, 1), (100, 1), 2, 7, 256),
    ],
)
def test_splits_as_planned_equal_dense_attention(dtype, block_size, lens, query_lens, kv_heads, group, head_dim):
    prefill = make_prefill(Shape(lens, kv_heads, group, head_dim, block_size, dtype), query_lens, padding=2**31 - 1)
    prefill.check()
    prefill.check(window=1000, softcap=20.0)


@on_gpu
def test_more_sequences_than_a_grid_axis_of_65535_has_programs():
    num_seqs = 70_000
    batch = make_batch(Shape(lens=(4,), kv_heads=1, group=1, head_dim=16))
    table, lens = batch.block_tables.expand(num_seqs, 1), ids(4).expand(num_seqs)
    starts = torch.arange(num_seqs + 1, device=batch.q.device)
    q = batch.q.expand(num_seqs, 1, 16)
    out = kernels.paged_prefill(q, batch.k_cache, batch.v_cache, table, lens, starts)
    assert_near(out, batch.expected.expand(num_seqs, 1, 16))
