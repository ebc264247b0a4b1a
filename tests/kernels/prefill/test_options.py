"""Windows, softcaps and 8-bit caches: paged_prefill gives what dense attention over the dequantized numbers gives."""

import pytest
import torch

from tests.kernel_cases import DTYPES, NAN, Shape, assert_near, make_batch, on_gpu, quantize, randn
from tests.kernels.decode.test_options import EIGHT_BITS
from tests.kernels.prefill.prefill_cases import cut, make_prefill


def test_window_counts_each_token_as_its_own_first():
    """With weights all equal the answer is the mean of the last W values up to the query's own."""
    prefill = make_prefill(Shape(lens=(6,), kv_heads=1, group=1), (3,))
    prefill.batch.q.zero_()
    for t in range(6):
        prefill.batch.v_cache[prefill.batch.block_tables[0, t // 4], t % 4] = float(t)
    for window, means in [(1, [3, 4, 5]), (2, [2.5, 3.5, 4.5]), (4, [1.5, 2.5, 3.5]), (10**9, [1.5, 2.0, 2.5])]:
        assert prefill.run(window=window)[:, 0, 0].tolist() == pytest.approx(means)
        assert prefill.run_reference(window=window)[:, 0, 0].tolist() == pytest.approx(means)


@pytest.mark.parametrize("tokens_per_tile", [None, 4])
def test_window_of_any_length_equals_dense_attention(tokens_per_tile):
    prefill = make_prefill(Shape(lens=(11, 2), kv_heads=1), (6, 3))
    for window in (1, 3, 4, 5, 11):
        prefill.check(window=window, tokens_per_tile=tokens_per_tile)
        assert_near(prefill.run_reference(window=window), prefill.dense(window=window))


def test_window_leaves_whole_tiles_between_its_edge_and_the_diagonal(monkeypatch):
    cut(monkeypatch, tile_tokens=16, tile_rows=16)
    prefill = make_prefill(Shape(lens=(120,), kv_heads=1, block_size=16), (9,))
    for window in (15, 16, 17, 64, 120):
        prefill.check(window=window)


def test_softcap_bends_scores_before_the_mask():
    """Bent after the mask, -inf would become -softcap, and hidden tokens would take part."""
    prefill = make_prefill(Shape(lens=(5, 18), kv_heads=1), (5, 2))
    for softcap in (0.5, 30.0):
        prefill.check(softcap=softcap)
    prefill.check(softcap=1e-3, scale=1e6, tokens_per_tile=4)
    assert_near(prefill.run_reference(softcap=0.5), prefill.dense(softcap=0.5))


@pytest.mark.parametrize(
    ("eight_bits", "per", "dtype"),
    [
        (torch.int8, "head", torch.float16),
        (torch.int8, "slot", torch.bfloat16),
        (torch.float8_e4m3fn, "slot", torch.float32),
        (torch.float8_e5m2, "head", torch.bfloat16),
    ],
    ids=str,
)
def test_eight_bit_caches_mean_what_is_stored_times_its_scale(eight_bits, per, dtype):
    prefill = make_prefill(Shape(lens=(5, 80), kv_heads=1, dtype=dtype), (5, 2))
    scales = quantize(prefill.batch, eight_bits, per)
    prefill.check(**scales)
    assert_near(prefill.run_reference(**scales), prefill.dense(**scales))


def test_scales_of_k_and_of_v_are_two_things():
    prefill = make_prefill(Shape(lens=(5, 18)), (2, 3))
    by_slot = quantize(prefill.batch, torch.float8_e4m3fn, "slot")
    for options in (
        {"k_scale": by_slot["k_scale"]},
        {"v_scale": by_slot["v_scale"]},
        {"k_scale": -randn(2).abs(), "v_scale": by_slot["v_scale"], "window": 6, "softcap": 2.0},
    ):
        prefill.check(**options)


def test_masked_lanes_lose_to_any_score_however_low():
    """A mask of -1e30 would win against these scores of -8e30, and the answer would be of tokens that are not seen."""
    prefill = make_prefill(Shape(lens=(5, 13), kv_heads=1), (5, 2))
    prefill.batch.q.fill_(1.0)
    prefill.batch.k_cache.fill_(-1.0)
    prefill.check(scale=1e30)


def test_nan_that_left_every_window_is_not_seen():
    batch = make_batch(Shape(lens=(9,)))
    prefill = make_prefill(Shape(lens=(9,)), (2,))
    for cache in (prefill.batch.k_cache, prefill.batch.v_cache):
        cache[batch.block_tables[0, 0], :4] = NAN
        cache[batch.block_tables[0, 1], 0] = NAN
    assert prefill.run(window=3).isfinite().all()
    assert prefill.run(window=4).isnan().any()


@on_gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("head_dim", "block_size"), [(64, 64), (80, 16), (128, 3), (128, 16), (128, 128), (256, 64)])
def test_options_equal_dense_attention_over_the_wide_matrix(dtype, head_dim, block_size):
    shape = Shape((1, 15, 16, 17, 0, 300, 1025), 2, 4, head_dim, block_size, dtype)
    prefill = make_prefill(shape, (1, 15, 3, 17, 2, 200, 130), padding=2**31 - 1, index_dtype=torch.int32)
    for window in (1, 15, 16, 17, 64, 299, 300, 301):
        prefill.check(window=window)
    prefill.check(window=100, softcap=5.0, tokens_per_tile=min(block_size, 64))
    prefill.check(softcap=5.0)


@on_gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("eight_bits", EIGHT_BITS, ids=str)
@pytest.mark.parametrize("head_dim", [80, 128, 256])
def test_eight_bit_caches_over_the_wide_matrix(eight_bits, dtype, head_dim):
    for per in ("head", "slot"):
        shape = Shape((1, 63, 64, 65, 0, 1025), 2, 4, head_dim, 16, dtype)
        prefill = make_prefill(shape, (1, 63, 3, 65, 0, 200), padding=2**31 - 1)
        scales = quantize(prefill.batch, eight_bits, per)
        prefill.check(**scales)
        prefill.check(**scales, window=70, softcap=9.0, tokens_per_tile=16)
