"""Rescales are skipped where they change nothing but rounding, and done where the sums would grow too large."""

import math

import pytest
import torch

import kernels
from kernels import reference
from tests.kernel_cases import DTYPES, NAN, assert_near, ids, on_gpu, randn

BOTH = pytest.mark.parametrize("call", [kernels.lazy_rescale, reference.lazy_rescale])
TABLE = (4, 1, 5, 2)


def one_query(seq_len, block_size, head_dim, dtype=torch.float32):
    """A query, caches whose unowned slots are NaN, and the float64 keys and values in order."""
    q, k, v = randn(head_dim, dtype=dtype), randn(seq_len, head_dim, dtype=dtype), randn(seq_len, head_dim, dtype=dtype)
    # Two heads lie side by side, as in a cache: what is passed is a view with strides of its own.
    caches = [torch.full((6, block_size, 2, head_dim), NAN, dtype=dtype, device=q.device) for _ in range(2)]
    for cache, rows in zip(caches, (k, v), strict=True):
        for t in range(seq_len):
            cache[TABLE[t // block_size], t % block_size, 1] = rows[t]
    return q, caches[0][:, :, 1], caches[1][:, :, 1], k, v


def with_maxima(*maxima):
    """A query and caches of blocks of one slot whose scores, in powers of 2, are these; values count from 1."""
    q = torch.tensor([1.0, 0.0], device=kernels.device())
    k_cache = torch.full((6, 1, 2), NAN, device=q.device)
    v_cache = k_cache.clone()
    for turn, score in enumerate(maxima):
        k_cache[TABLE[turn], 0] = torch.tensor([score / math.log2(math.e), 7.0])
        v_cache[TABLE[turn], 0] = turn + 1.0
    return q, k_cache, v_cache, ids(*TABLE), len(maxima), 1.0


@BOTH
@pytest.mark.parametrize(
    ("maxima", "m", "done", "skipped"),
    [
        ([3, 9, 12], [3, 3, 12], 1, 1),  # the docstring's
        ([0, 7.9, 8.1], [0, 0, 8.1], 1, 1),
        ([0, 5, 3, 6], [0, 0, 0, 0], 0, 2),  # 3 is above what is in use, and the plain kernel would not rescale either
        ([20, 5, 19.5], [20, 20, 20], 0, 0),
        ([0, 9, 18, 27], [0, 9, 18, 27], 3, 0),
        ([-40], [-40], 0, 0),  # the first turn has nothing to scale down
    ],
)
def test_rescale_is_done_only_when_the_maximum_outgrows_the_one_in_use(call, maxima, m, done, skipped):
    found = call(*with_maxima(*maxima))
    assert found.rescales.tolist() == [done, skipped]
    torch.testing.assert_close(found.m.cpu(), torch.tensor(m, dtype=torch.float32))
    weights = torch.softmax(torch.tensor(maxima, dtype=torch.float64) / math.log2(math.e), dim=0)
    value = float((weights * torch.arange(1, len(maxima) + 1)).sum())
    torch.testing.assert_close(found.out.cpu().double(), torch.full((2,), value, dtype=torch.float64))


@BOTH
def test_threshold_of_zero_is_the_plain_kernel(call):
    found = call(*with_maxima(0, 5, 3, 6), threshold=0.0)
    torch.testing.assert_close(found.m.cpu(), torch.tensor([0.0, 5.0, 5.0, 6.0]))
    assert found.rescales.tolist() == [2, 0]


@BOTH
@pytest.mark.parametrize("threshold", [0.0, 8.0])
@pytest.mark.parametrize("sharpness", [1, 12])
def test_answer_is_that_of_dense_attention(call, sharpness, threshold):
    q, k_cache, v_cache, k, v = one_query(11, 3, 5)
    scale = sharpness * 5**-0.5
    found = call(q, k_cache, v_cache, ids(*TABLE), 11, scale, threshold=threshold)
    assert_near(found.out, kernels.dense_attention(q[None, None], k[:, None], v[:, None], scale)[0, 0])
    # Whatever maximum is in use, m and l together say the same: log2 of the sum of 2^score.
    exact = torch.logsumexp(q.double() @ k.double().T * scale, dim=0) * math.log2(math.e)
    torch.testing.assert_close((found.m[-1] + found.l[-1].log2()).double(), exact, atol=1e-4, rtol=1e-5)


@BOTH
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"seq_len": 0}, "seq_len is 0; it must be 1 to 12"),
        ({"seq_len": 13}, "seq_len is 13"),
        ({"block_table": ids(4, 6, -1, 9)}, r"block_table names blocks \[6, -1, 9\]; the cache has blocks 0 to 5"),
        ({"threshold": -1.0}, "threshold is -1.0"),
        ({"threshold": math.nan}, "threshold is nan"),
        ({"q": randn(4)}, r"q is \[4\], k_cache \[6, 3, 5\]"),
    ],
)
def test_what_cannot_be_is_refused(call, wrong, says):
    q, k_cache, v_cache, _, _ = one_query(11, 3, 5)
    given = {"q": q, "k_cache": k_cache, "v_cache": v_cache, "block_table": ids(*TABLE), "seq_len": 11} | wrong
    with pytest.raises(ValueError, match=f"lazy_rescale: {says}"):
        call(**given)


@on_gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threshold", [0.0, 8.0])
def test_compiled_kernel_agrees(dtype, threshold):
    q, k_cache, v_cache, k, v = one_query(60, 16, 128, dtype)
    scale = 12 * 128**-0.5
    found = kernels.lazy_rescale(q, k_cache, v_cache, ids(*TABLE), 60, scale, threshold=threshold)
    assert_near(found.out, kernels.dense_attention(q[None, None], k[:, None], v[:, None], scale)[0, 0])
