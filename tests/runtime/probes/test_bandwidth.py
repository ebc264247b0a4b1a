"""What stands behind a figure of bandwidth: the bytes that must be read, and outputs that are right."""

import torch

from pagedviz.runtime.measuring.bandwidth import Shape, decode_bandwidth, relative_error
from tests.kernel_cases import NAN, on_gpu


def test_bytes_are_k_and_v_of_every_token_and_kv_head_once():
    assert Shape(2, 10, 8, 4, head_dim=16).bytes == 2 * 2 * 10 * 4 * 16 * 2
    assert Shape(2, 10, 8, 4, head_dim=16, kv_dtype=torch.int8).bytes == 2 * 2 * 10 * 4 * 16


def test_error_is_relative_to_the_largest_value_and_nothing_that_is_not_finite_passes():
    wanted = torch.tensor([4.0, -8.0], dtype=torch.float64)
    assert relative_error(torch.tensor([4.0, -6.0]), wanted) == 0.25
    assert relative_error(torch.tensor([4.0, NAN]), wanted) == float("inf")


@on_gpu
def test_measured_rows_are_right_and_in_order():
    rows = decode_bandwidth([16, 256], rounds=3)
    assert [row["block_size"] for row in rows] == [16, 256]
    for row in rows:
        assert row["error"] < 1e-2
        assert row["gb_s"] == 2 * 8 * 8192 * 8 * 128 * 2 / row["microseconds"] / 1000
