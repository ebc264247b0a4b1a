"""paged_prefill gives what dense attention gives to many new tokens, wherever the blocks lie."""

import pytest

from tests.kernel_cases import DTYPES, Shape, assert_near
from tests.prefill_cases import make_prefill

SMALL = [
    *((Shape(dtype=dtype), None) for dtype in DTYPES),
    # The last block holds all but one token, all, and one; a table exactly as wide as that.
    (Shape(lens=(3, 4, 5, 8)), (3, 2, 5, 1)),
    (Shape(lens=(1,), group=1, kv_heads=1, head_dim=1, block_size=1), None),
    (Shape(lens=(7, 2), block_size=3, head_dim=17), (4, 2)),
    # More queries than keys: the first see nothing.
    (Shape(lens=(2, 0)), (4, 3)),
]


@pytest.mark.parametrize(("shape", "query_lens"), SMALL, ids=str)
def test_equals_dense_attention(shape, query_lens):
    prefill = make_prefill(shape, query_lens)
    prefill.check()
    assert_near(prefill.run_reference(), prefill.dense())


def test_rows_after_the_last_sequence_are_zeros():
    prefill = make_prefill(Shape(lens=(5, 3)), padding_rows=3)
    prefill.check()
    assert prefill.run()[8:].count_nonzero() == 0


def test_window_and_softcap_equal_dense_attention():
    prefill = make_prefill(Shape(lens=(11, 4, 0, 5)), (6, 4, 0, 1))
    for window in (1, 3, 4, 5, 11):
        prefill.check(window=window, softcap=2.0)
        assert_near(prefill.run_reference(window=window, softcap=2.0), prefill.dense(window=window, softcap=2.0))
