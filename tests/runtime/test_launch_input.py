"""The tensors of one launch, for a batch in which one sequence may write and the others only ask."""

import pytest
import torch

from pagedviz.runtime.computing.launch_input import launch_input
from tests.engine.engine_cases import Watched


def two(profile="vllm-v0"):
    """The example of the docstring: B holds 6 tokens in blocks 6 and 5; A has just written its prompt into block 7."""
    null_block = profile == "vllm-v1"
    cache = Watched(profile=profile, free_blocks=[6, 5, 7, 1, 2, 3, 4] + [0] * (not null_block))
    cache.add("B", range(6))
    cache.add("A", ["a", "b", "c"])
    return cache


def test_words_behind_others_beside_a_sequence_that_only_asks():
    cache = Watched(free_blocks=[7, 6, 5, 1, 2, 3, 4, 0])
    cache.add("A", ["a"])
    cache.add("B", range(6))
    cache.append("A", ["b", "c"])
    launch = launch_input(cache.snapshot(), cache.events[-1])
    assert (launch.seq_ids, launch.query_lens, launch.is_decode) == (("A", "B"), (2, 1), False)
    assert launch.block_tables.tolist() == [[7, -1], [6, 5]]
    assert launch.seq_lens.tolist() == [3, 6]
    assert launch.query_start_loc.tolist() == [0, 2, 3]
    assert launch.slot_mapping.tolist() == [29, 30, -1]


@pytest.mark.parametrize(("profile", "padding"), [("vllm-v0", -1), ("vllm-v1", 0)])
def test_short_rows_are_padded_with_the_null_block_or_where_there_is_none_with_minus_one(profile, padding):
    cache = two(profile)
    launch = launch_input(cache.snapshot(), cache.events[-1])
    assert (launch.seq_ids, launch.query_lens) == (("B", "A"), (1, 3))
    assert launch.block_tables.tolist() == [[6, 5], [7, padding]]
    assert launch.query_start_loc.tolist() == [0, 1, 4]
    assert launch.slot_mapping.tolist() == [-1, 28, 29, 30]


def test_dtypes_are_those_of_a_serving_engine():
    cache = two()
    launch = launch_input(cache.snapshot(), cache.events[-1])
    tensors = launch.block_tables, launch.seq_lens, launch.query_start_loc, launch.slot_mapping
    assert [tensor.dtype for tensor in tensors] == [torch.int32] * 3 + [torch.int64]


def test_one_token_is_a_decode_for_all():
    cache = two()
    cache.append("A", ["d"])
    launch = launch_input(cache.snapshot(), cache.events[-1])
    assert (launch.query_lens, launch.is_decode) == ((1, 1), True)
    assert launch.slot_mapping.tolist() == [-1, 31]


def test_event_that_writes_nothing_asks_with_the_newest_token_of_each():
    cache = two()
    cache.fork("A", "C")
    launch = launch_input(cache.snapshot(), cache.events[-1])
    assert (launch.seq_ids, launch.query_lens, launch.is_decode) == (("B", "A", "C"), (1, 1, 1), True)
    assert launch.slot_mapping.tolist() == [-1, -1, -1]
    assert launch_input(cache.snapshot(), None).slot_mapping.tolist() == [-1, -1, -1]


def test_spilled_and_half_spilled_sequences_are_not_in_it():
    cache = two()
    cache.fork("B", "C")
    cache.append("C", ["x"])
    cache.spill("A")
    cache.spill("C")  # its first block stays for B
    assert launch_input(cache.snapshot(), cache.events[-1]).seq_ids == ("B",)
    cache.reload("C")
    assert launch_input(cache.snapshot(), cache.events[-1]).seq_ids == ("B", "C")


def test_sequence_that_has_no_token_yet_is_not_in_it():
    cache = two()
    seen = []
    cache.watchers.append(lambda event: seen.append(launch_input(cache.snapshot(), event).seq_ids))
    cache.add("C", ["x"])
    assert seen == [("B", "A"), ("B", "A"), ("B", "A", "C")]


def test_nothing_on_the_device_is_an_empty_launch():
    cache = Watched()
    launch = launch_input(cache.snapshot(), None)
    assert (launch.seq_ids, launch.query_lens, launch.query_start_loc.tolist()) == ((), (), [0])
    assert (list(launch.block_tables.shape), launch.seq_lens.tolist()) == ([0, 0], [])
    assert (launch.slot_mapping.tolist(), launch.is_decode) == ([], True)
    cache.add("A", range(5))
    cache.spill("A")
    assert launch_input(cache.snapshot(), cache.events[-1]).seq_ids == ()
