"""The plain torch reference, judged by torch's own attention: it judges everything else."""

import pytest
import torch
import torch.nn.functional as F

import kernels
from kernels import reference
from tests.kernel_cases import DTYPES, NAN, Shape, assert_near, make_batch, randn


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (4, 2), (6, 2), (7, 1)])
def test_dense_attention_is_torchs_attention_in_float64(heads, kv_heads):
    q, k, v = randn(1, heads, 8), randn(9, kv_heads, 8, seed=1), randn(9, kv_heads, 8, seed=2)
    theirs = F.scaled_dot_product_attention(*(x.double().transpose(0, 1)[None] for x in (q, k, v)), enable_gqa=True)
    ours = kernels.dense_attention(q, k, v)
    assert ours.dtype == torch.float64
    torch.testing.assert_close(ours, theirs[0].transpose(0, 1))


def test_dense_attention_of_many_queries_is_causal_and_ends_aligned():
    q, k, v = randn(3, 2, 8), randn(5, 1, 8, seed=1), randn(5, 1, 8, seed=2)
    together = kernels.dense_attention(q, k, v)
    for i in range(3):
        one_by_one = kernels.dense_attention(q[i : i + 1], k[: 3 + i], v[: 3 + i])
        torch.testing.assert_close(together[i : i + 1], one_by_one)


def test_dense_attention_gives_zeros_to_a_query_that_sees_nothing():
    assert kernels.dense_attention(randn(1, 2, 8), randn(0, 1, 8), randn(0, 1, 8)).count_nonzero() == 0
    out = kernels.dense_attention(randn(3, 2, 8), randn(2, 1, 8), randn(2, 1, 8))
    assert out[0].count_nonzero() == 0
    assert out[1:].count_nonzero() == out[1:].numel()


def test_dense_attention_refuses_heads_that_do_not_divide():
    with pytest.raises(ValueError, match=r"dense_attention: q is \[1, 3, 8\], k \[2, 2, 8\]"):
        kernels.dense_attention(randn(1, 3, 8), randn(2, 2, 8), randn(2, 2, 8))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("group", [1, 3])
def test_blockwise_decode_is_dense_attention(dtype, group):
    batch = make_batch(Shape(lens=(3, 4, 5, 0, 13), group=group, dtype=dtype), padding=2**31 - 1, spare_columns=1)
    out = reference.paged_decode(batch.q, batch.k_cache, batch.v_cache, batch.block_tables, batch.seq_lens)
    assert out.dtype == dtype
    assert_near(out, batch.expected)


def test_kernel_and_reference_agree_where_both_show_a_nan():
    batch = make_batch(Shape(lens=(6,)))
    batch.k_cache[batch.block_tables[0, 1], 1, 0, 0] = NAN
    ours = batch.decode()
    theirs = reference.paged_decode(batch.q, batch.k_cache, batch.v_cache, batch.block_tables, batch.seq_lens)
    assert torch.equal(ours.isnan(), theirs.isnan())
    assert ours[0, :2].isnan().all()
