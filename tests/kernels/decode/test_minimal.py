"""The smallest kernel gives what the reference gives, and what dense attention gives."""

import pytest
import torch

from kernels import launch, reference
from tests.kernel_cases import DTYPES, INF, NAN, Shape, assert_near, make_batch, on_gpu

pytestmark = pytest.mark.skipif(not launch.USES_TRITON, reason="needs Triton")


def decode(batch):
    from kernels.decode.minimal import minimal_decode

    return minimal_decode(batch.q, batch.k_cache, batch.v_cache, batch.block_tables, batch.seq_lens)


def check(batch):
    out = decode(batch)
    assert out.dtype == batch.q.dtype
    assert_near(out, batch.expected)
    twin = reference.paged_decode(batch.q, batch.k_cache, batch.v_cache, batch.block_tables, batch.seq_lens)
    assert_near(out, twin)


@pytest.mark.parametrize(
    "shape",
    [
        *(Shape(dtype=dtype) for dtype in DTYPES),
        # The last block holds all but one token, all, and one; a table exactly as wide as that.
        Shape(lens=(3, 4, 5, 8)),
        Shape(lens=(1,), group=1, kv_heads=1, head_dim=1, block_size=1),
        Shape(lens=(9,), group=3, kv_heads=2, head_dim=16, block_size=8),
    ],
    ids=str,
)
def test_equals_the_reference_and_dense_attention(shape):
    check(make_batch(shape))


@pytest.mark.parametrize("poison", [(NAN, 0.0), (0.0, NAN), (INF, -INF)], ids=str)
def test_slots_of_others_never_reach_the_output(poison):
    check(make_batch(Shape(lens=(5, 1)), poison=poison))


def test_entries_past_the_last_block_are_never_followed():
    check(make_batch(Shape(lens=(4, 9, 0)), padding=2**31 - 1, spare_columns=2, index_dtype=torch.int32))


def test_scores_too_large_for_exp_do_not_overflow():
    batch = make_batch(Shape(lens=(9,)))
    batch.q *= 1000
    assert_near(decode(batch), batch.dense())


CACHES = ("k_cache", "v_cache")


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        (r"q has 3 heads and the cache 2 KV heads", {"q": lambda q: q[:, :3]}),
        (r"q has strides \(32, 1, 4\); it must be contiguous", {"q": lambda q: q.transpose(1, 2).contiguous().mT}),
        (r"block_size is 3; it must be a power of two", {name: lambda x: x[:, :3].contiguous() for name in CACHES}),
        (
            r"k_cache is torch.int8 and q is torch.float32; they must be of one dtype",
            {name: lambda x: x.to(torch.int8) for name in CACHES},
        ),
        (r"block_tables is \[1, 2\]; it must be", {"block_tables": lambda t: t[:1]}),
    ],
)
def test_what_it_cannot_do_is_refused(message, changes):
    batch = make_batch(Shape(lens=(5, 3)))
    for name, change in changes.items():
        setattr(batch, name, change(getattr(batch, name)))
    with pytest.raises(ValueError, match=f"minimal_decode: {message}"):
        decode(batch)


@on_gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("head_dim", [16, 64, 128, 256])
@pytest.mark.parametrize("block_size", [1, 16, 64])
def test_equals_the_reference_over_the_wide_matrix(dtype, head_dim, block_size):
    check(make_batch(Shape((1, 63, 64, 65, 0, 300, 1025), 2, 4, head_dim, block_size, dtype), padding=2**31 - 1))
