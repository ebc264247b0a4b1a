"""Windows, softcaps and 8-bit caches: paged_decode gives what dense attention over the dequantized numbers gives."""

import pytest
import torch

import kernels
from kernels import reference
from tests.kernel_cases import DTYPES, NAN, Shape, assert_near, make_batch, on_gpu, quantize, randn

EIGHT_BITS = [torch.int8, torch.float8_e4m3fn, torch.float8_e5m2]


def by_reference(batch, **options):
    return reference.paged_decode(batch.q, batch.k_cache, batch.v_cache, batch.block_tables, batch.seq_lens, **options)


def test_window_counts_the_newest_token_as_its_first():
    """With weights all equal the answer is the mean of the last W values: 2, 3, 4, 5 of 0 to 5 for a window of 4."""
    batch = make_batch(Shape(lens=(6,), kv_heads=1, group=1))
    batch.q.zero_()
    for t in range(6):
        batch.v_cache[batch.block_tables[0, t // 4], t % 4] = float(t)
    for window, mean in [(1, 5.0), (2, 4.5), (4, 3.5), (5, 3.0), (6, 2.5), (7, 2.5), (10**9, 2.5)]:
        assert batch.decode(window=window).flatten().tolist() == pytest.approx([mean] * 8)
        assert by_reference(batch, window=window).flatten().tolist() == pytest.approx([mean] * 8)


@pytest.mark.parametrize("tokens_per_tile", [None, 4])
def test_window_of_any_length_equals_dense_attention(tokens_per_tile):
    batch = make_batch(Shape(lens=(11, 4, 0), kv_heads=1))
    for window in (1, 3, 4, 5, 11):
        batch.check_options(window=window, tokens_per_tile=tokens_per_tile)
        assert_near(by_reference(batch, window=window), batch.dense(window=window))


def test_nan_that_left_the_window_is_not_seen():
    batch = make_batch(Shape(lens=(6,)))
    for cache in (batch.k_cache, batch.v_cache):
        cache[batch.block_tables[0, 0], :3] = NAN
    for tokens_per_tile in (None, 4):
        assert batch.decode(window=3, tokens_per_tile=tokens_per_tile).isfinite().all()
    assert batch.decode(window=4).isnan().any()
    assert by_reference(batch, window=3).isfinite().all()


def test_softcap_bends_scores_before_the_mask():
    """Bent after the mask, -inf would become -softcap, and lanes without a token would take part."""
    batch = make_batch(Shape(lens=(5, 0, 18), kv_heads=1))
    for softcap in (0.5, 30.0):
        batch.check_options(softcap=softcap)
        batch.check_options(softcap=softcap, tokens_per_tile=4)
    assert_near(by_reference(batch, softcap=0.5), batch.dense(softcap=0.5))


def test_softcap_does_not_overflow():
    batch = make_batch(Shape(lens=(9,)))
    batch.check_options(softcap=10.0, scale=1e6)
    batch.check_options(softcap=1e-3, scale=1e6)


def test_softcap_bends_the_score_in_units_of_e():
    """Two tokens, scores +1e9 and -1e9 bent to +-1: weights e / (e + 1/e) and its rest."""
    batch = make_batch(Shape(lens=(2,), kv_heads=1, group=1, head_dim=1))
    batch.q.fill_(1.0)
    batch.k_cache[batch.block_tables[0, 0], :2] = torch.tensor([1.0, -1.0], device=batch.q.device).view(2, 1, 1)
    batch.v_cache[batch.block_tables[0, 0], :2] = torch.tensor([1.0, 0.0], device=batch.q.device).view(2, 1, 1)
    assert batch.decode(softcap=1.0, scale=1e9).item() == pytest.approx(0.880797, abs=1e-5)


@pytest.mark.parametrize(
    ("eight_bits", "per", "dtype"),
    [
        (torch.int8, "head", torch.float32),
        (torch.int8, "slot", torch.bfloat16),
        (torch.float8_e4m3fn, "head", torch.float16),
        (torch.float8_e4m3fn, "slot", torch.float32),
        (torch.float8_e5m2, "head", torch.bfloat16),
        (torch.float8_e5m2, "slot", torch.float16),
    ],
    ids=str,
)
def test_eight_bit_caches_mean_what_is_stored_times_its_scale(eight_bits, per, dtype):
    batch = make_batch(Shape(lens=(5, 0, 18), dtype=dtype))
    scales = quantize(batch, eight_bits, per)
    batch.check_options(**scales)
    assert_near(by_reference(batch, **scales), batch.dense(**scales))


def test_scales_of_k_and_of_v_are_two_things():
    batch = make_batch(Shape(lens=(5, 18)))
    by_slot = quantize(batch, torch.float8_e4m3fn, "slot")
    for options in (
        {},
        {"k_scale": by_slot["k_scale"]},
        {"v_scale": by_slot["v_scale"]},
        {"k_scale": randn(2).abs(), "v_scale": by_slot["v_scale"]},
        {"k_scale": by_slot["k_scale"], "v_scale": randn(2).abs(), "window": 6, "softcap": 2.0},
    ):
        batch.check_options(**options)
    batch.check_options(**options, tokens_per_tile=4)


def test_scales_may_be_views_and_belong_to_float_caches_too():
    batch = make_batch(Shape(lens=(5, 18)))
    wide = randn(*batch.k_cache.shape[:3], 3).abs()
    batch.check_options(k_scale=wide[..., 0], v_scale=wide[..., 2])
    batch.check_options(v_scale=randn(2, 2).abs()[:, 1])


@pytest.mark.parametrize("size", [1e-9, 1e9])
@pytest.mark.parametrize("per", ["head", "slot"])
def test_scales_beyond_half_precision_neither_vanish_nor_overflow(size, per):
    batch = make_batch(Shape(lens=(5, 18), dtype=torch.bfloat16))
    scales = quantize(batch, torch.int8, per)
    scales["v_scale"] *= size
    out, dense = batch.decode(**scales), batch.dense(**scales)
    assert_near((out.double() / size).bfloat16(), dense / size)


def test_queries_beyond_half_precision_neither_vanish_nor_overflow():
    batch = make_batch(Shape(lens=(5, 18), dtype=torch.bfloat16))
    scales = quantize(batch, torch.float8_e4m3fn, "head")
    for size in (2.0**-40, 2.0**40):
        batch.q *= size
        batch.check_options(**scales, scale=0.3 / size)
        batch.q /= size


def check_every_number(eight_bits, dtype):
    """Sixteen tokens of sixteen of the 256 bit patterns each, NaN and infinities too, by queries that attend to one."""
    bits = torch.arange(256, dtype=torch.uint8).view(2, 8, 1, 16).to(kernels.device())
    v_cache = bits.view(eight_bits)
    k_cache = torch.zeros_like(bits).view(eight_bits)
    q = torch.ones(16, 1, 16, device=kernels.device(), dtype=dtype)
    slots = torch.arange(16, device=kernels.device())
    # Window 1 over a sequence that ends at the token: its value comes back untouched.
    table = (slots // 8)[:, None].expand(16, 1)
    ones = {name: torch.ones(1, device=kernels.device()) for name in ("k_scale", "v_scale")}
    out = kernels.paged_decode(q, k_cache, v_cache, table, slots % 8 + 1, window=1, **ones)
    expected = v_cache.flatten().to(dtype)
    torch.testing.assert_close(out.flatten(), expected, equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("eight_bits", EIGHT_BITS, ids=str)
def test_every_eight_bit_number_is_read_right(eight_bits):
    check_every_number(eight_bits, torch.float32)


@on_gpu
@pytest.mark.parametrize("eight_bits", EIGHT_BITS, ids=str)
def test_every_eight_bit_number_is_widened_right(eight_bits):
    """The same through a dot of float16, for which the kernel widens with instructions of its own."""
    check_every_number(eight_bits, torch.float16)


@on_gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("head_dim", [64, 80, 128, 256])
@pytest.mark.parametrize("block_size", [3, 16, 64])
def test_options_equal_dense_attention_over_the_wide_matrix(dtype, head_dim, block_size):
    shape = Shape((1, 15, 16, 17, 0, 300, 1025), 2, 4, head_dim, block_size, dtype)
    batch = make_batch(shape, padding=2**31 - 1, index_dtype=torch.int32)
    for window in (1, 15, 16, 17, 64, 299, 300, 301):
        batch.check_options(window=window)
        batch.check_options(window=window, tokens_per_tile=min(block_size, 64))
    batch.check_options(window=100, softcap=5.0)


@on_gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("eight_bits", EIGHT_BITS, ids=str)
@pytest.mark.parametrize("head_dim", [64, 80, 128, 256])
def test_eight_bit_caches_over_the_wide_matrix(eight_bits, dtype, head_dim):
    for per in ("head", "slot"):
        batch = make_batch(Shape((1, 63, 64, 65, 0, 1025), 2, 4, head_dim, 16, dtype), padding=2**31 - 1)
        scales = quantize(batch, eight_bits, per)
        batch.check_options(**scales)
        batch.check_options(**scales, window=70, softcap=9.0, tokens_per_tile=16)
