"""Where a tile of tokens lies inside one block it is fetched as one box: the same answers, and from the right place."""

import sys

import pytest
import torch

import kernels
from kernels import launch
from tests.kernel_cases import INF, NAN, Shape, on_gpu
from tests.kernels.prefill.prefill_cases import cut, make_prefill

pytestmark = pytest.mark.skipif(not launch.USES_TRITON, reason="needs Triton")
SHAPE = Shape(lens=(37, 16, 5), kv_heads=2, head_dim=16, block_size=16, dtype=torch.float16)


@pytest.fixture
def boxes_only(monkeypatch):
    """Tiles of 16 tokens, and no other kernel to fall back to."""
    cut(monkeypatch, tile_tokens=16)
    monkeypatch.setattr(sys.modules["kernels.prefill.paged_prefill"], "paged_prefill_kernel", None)


def test_boxes_give_what_dense_attention_gives(boxes_only):
    prefill = make_prefill(Shape((37, 16, 0), 1, 2, 16, 16, torch.bfloat16), (9, 16, 0))
    prefill.check()
    prefill.check(window=20, softcap=3.0)


def test_a_block_may_hold_several_boxes(boxes_only):
    make_prefill(Shape((70, 33), 1, 2, 16, 32, torch.float16), (3, 2)).check()


@pytest.mark.parametrize("poison", [(NAN, 0.0), (0.0, NAN)], ids=str)
def test_slots_of_others_in_a_box_never_reach_the_output(boxes_only, poison):
    make_prefill(SHAPE, (2, 1, 5), poison=poison, padding=2**31 - 1, spare_columns=1).check()


def test_pools_may_be_interleaved_or_by_head(boxes_only):
    pool = torch.empty(9, 2, 16, 2, 16, dtype=torch.float16, device=kernels.device())
    make_prefill(SHAPE, (2, 1, 5), caches=(pool[:, 0], pool[:, 1])).check()
    by_head = torch.empty(9, 2, 16, 32, dtype=torch.float16, device=kernels.device()).transpose(1, 2)
    make_prefill(SHAPE, (2, 1, 5), caches=(by_head[..., :16], by_head[..., 16:])).check()


def test_splits_of_boxes(boxes_only, monkeypatch):
    cut(monkeypatch, num_splits=3)
    make_prefill(Shape((37, 5), 1, 2, 16, 16, torch.float16), (2, 5)).check()


def test_boxes_are_where_the_docstring_says():
    from kernels.prefill.descriptors import boxes

    cache = torch.empty(100, 64, 8, 128, dtype=torch.float16)
    matrix, places = boxes(cache, 64)
    assert (matrix.shape, matrix.strides, matrix.block_shape) == ([6400, 1024], [1024, 1], [64, 128])
    assert places == (64, 0, 128)


@pytest.mark.parametrize(
    ("cache", "tile_tokens"),
    [
        (torch.empty(4, 32, 2, 16, dtype=torch.float16), 64),
        (torch.empty(4, 48, 2, 16, dtype=torch.float16), 32),
        (torch.empty(4, 32, 2, 24, dtype=torch.float16), 16),
        (torch.empty(4, 32, 2, 32, dtype=torch.float16)[..., ::2], 16),
        (torch.empty(4, 32, 2, 17, dtype=torch.float16)[..., :16], 16),
        (torch.empty(4, 32, 2, 24, dtype=torch.float16)[..., 4:20], 16),
        (torch.empty(9, 32, 2, 16, dtype=torch.float16).as_strided((4, 32, 2, 16), (1000, 32, 16, 1)), 16),
        (torch.empty(0, 32, 2, 16, dtype=torch.float16), 16),
    ],
    ids=["smaller block", "tile over two blocks", "dim", "dim apart", "stride", "start", "blocks apart", "no block"],
)
def test_what_is_no_matrix_of_boxes_is_fetched_slot_by_slot(cache, tile_tokens):
    from kernels.prefill.descriptors import boxes

    assert boxes(cache, tile_tokens) is None


@on_gpu
@pytest.mark.parametrize("head_dim", [16, 64, 128, 256])
@pytest.mark.parametrize("block_size", [64, 128, 256])
def test_boxes_over_the_wide_matrix(block_size, head_dim):
    for dtype in (torch.float16, torch.bfloat16):
        shape = Shape((1, 63, 64, 65, 0, 1025, 700), 2, 4, head_dim, block_size, dtype)
        for poison in ((NAN, 0.0), (0.0, NAN), (INF, INF)):
            prefill = make_prefill(shape, (1, 63, 3, 65, 0, 1025, 130), poison=poison, padding=2**31 - 1)
            prefill.check()
        prefill.check(window=100, softcap=9.0)
