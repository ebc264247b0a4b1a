"""What a preemption takes, counted by hand for small runs; and the cost of a preemption: every way is really taken."""

from dataclasses import replace

import pytest
import torch

import kernels
from pagedviz import probe
from pagedviz.engine.policies.limits import Limits
from pagedviz.probe import PREEMPTIONS, SwapOrRecompute
from pagedviz.runtime import probes
from pagedviz.runtime.measuring.preemption_cost import Decoder, PreemptionCase, preemption_cost
from pagedviz.runtime.measuring.swaps import CountedTransfers
from pagedviz.runtime.running.recording import Moment
from pagedviz.scenario.operations import Abort, Add, EngineSteps, Free, Spill, Submit
from pagedviz.scenario.scenario import Scenario
from pagedviz.scenario.settings import CacheConfig
from tests.kernel_cases import on_gpu

pytestmark = pytest.mark.slow

# 16 slots. A and B write 7 tokens, then 8; for its ninth A preempts B, and finishes with its eleventh.
CACHE = CacheConfig(
    num_blocks=5, host_blocks=2, profile="vllm-v1", policies=(("preemption", "swap"),), scheduler=Limits(32)
)
OPS = (
    Submit("A", tuple("abcdefg"), 5, tuple("hijkl")),
    Submit("B", tuple("mnopqrs"), 4, tuple("tuvw")),
    EngineSteps(2),
    EngineSteps(1),
    EngineSteps(20),
)
SLOT = 2 * CACHE.num_layers * CACHE.num_kv_heads * CACHE.head_dim * 4  # bytes of a token's K and V


def asked(*sizes, preemptions=tuple(PREEMPTIONS), ops=OPS, cache=CACHE):
    """What is answered at the end of these operations. The counts need no tensor of the run itself."""
    return probes.answer(SwapOrRecompute(sizes, preemptions), Moment(Scenario(0, cache, ops), None, None, None, {}))


def rows(*sizes, **more):
    return asked(*sizes, **more)["rows"]


def counted(row, direction):
    return [row[direction][what] for what in ("blocks", "copies", "staged", "bytes")]


def test_swap_copies_each_block_of_k_and_v_of_each_layer_and_staged_once_each_way():
    for size, row in zip((1, 2, 4, 8), rows(1, 2, 4, 8, preemptions=("swap",)), strict=True):
        blocks = 8 // size
        assert row["preempted"] == [{"seq_id": "B", "how": "swap", "had": 8}]
        assert counted(row, "out") == counted(row, "back") == [blocks, 4 * blocks, 1, 8 * SLOT]
        assert (row["again"], row["hit"]) == (0, 0)


def test_three_layers_are_six_copies_a_block():
    (row,) = rows(4, preemptions=("swap",), cache=replace(CACHE, num_layers=3))
    assert row["out"]["copies"] == 6 * 2


def test_what_is_still_on_the_host_has_been_copied_one_way_only():
    (row,) = rows(4, preemptions=("swap",), ops=OPS[:4])
    assert (row["out"]["copies"], row["back"]["copies"]) == (8, 0)


def test_host_blocks_that_are_not_in_a_row_take_a_staged_copy_each():
    holes = (Add("X", ("x",)), Add("Y", ("y",)), Spill("X"), Spill("Y"), Free("X"))
    cache = replace(CACHE, num_blocks=5, host_blocks=3)
    (row,) = rows(4, preemptions=("swap",), ops=(*holes, *OPS), cache=cache)
    # Host blocks 0 and 2 are free, Y's is between them. X's and Y's blocks went alone.
    assert counted(row, "out")[:3] == [4, 16, 3]
    assert counted(row, "back")[:3] == [2, 8, 2]


def test_two_who_come_back_in_one_step_are_two_swaps():
    prompts = {"A": 11, "B": 3, "C": 3}
    three = [Submit(name, (name,) * length, 3, ("x",) * 3) for name, length in prompts.items()]
    cache = replace(CACHE, num_blocks=6)
    (row,) = rows(4, preemptions=("swap",), ops=(*three, EngineSteps(20)), cache=cache)
    # A takes C's block for its 13th token, and B finds none for its fifth. Both come back when A has finished.
    assert [one["seq_id"] for one in row["preempted"]] == ["C", "B"]
    assert (counted(row, "out")[:3], counted(row, "back")[:3]) == ([2, 8, 2], [2, 8, 2])


def test_recompute_computes_the_same_tokens_again_at_any_block_size():
    for row in rows(1, 2, 4, 8, preemptions=("recompute",)):
        assert row["preempted"] == [{"seq_id": "B", "how": "recompute", "had": 8}]
        assert counted(row, "out") == counted(row, "back") == [0, 0, 0, 0]
        assert (row["again"], row["hit"]) == (8, 0)


def test_with_prefix_caching_what_nobody_took_is_hit_and_larger_blocks_lose_more():
    # A writes three tokens more, into the tail of what B let go.
    found = [(row["again"], row["hit"]) for row in rows(1, 2, 4, 8, preemptions=("recompute, prefix caching",))]
    assert found == [(3, 5), (4, 4), (4, 4), (8, 0)]


def test_hits_of_a_request_that_was_never_preempted_are_not_counted():
    ops = (Submit("X", tuple("abcdefgh"), 1, ("x",)), EngineSteps(1), *OPS)
    (row,) = rows(4, preemptions=("recompute, prefix caching",), ops=ops)
    assert (row["again"], row["hit"]) == (4, 4)  # B's, and not what A hit of X


def test_only_what_was_written_before_is_computed_again():
    """B is preempted while its prompt is computed in pieces: what it had not computed yet is new."""
    cache = replace(CACHE, scheduler=Limits(5), policies=(("admission", "first_chunk_fits"),))
    ops = (Submit("A", tuple("abcdefg"), 5, tuple("hijkl")), Submit("B", tuple("mnopqrst"), 1, ("u",)))
    (row,) = rows(4, preemptions=("recompute",), ops=(*ops, EngineSteps(30)), cache=cache)
    assert [one["had"] for one in row["preempted"]] == [7, 4]
    assert row["again"] == 7 + 4


def test_host_that_is_too_small_is_not_used_and_all_is_computed_again():
    (row,) = rows(4, preemptions=("swap",), cache=replace(CACHE, host_blocks=1))
    assert row["preempted"] == [{"seq_id": "B", "how": "recompute", "had": 8}]
    assert (counted(row, "out"), row["again"]) == ([0, 0, 0, 0], 8)


def test_other_policies_of_the_run_stay():
    cache = replace(CACHE, policies=(("preemption", "swap"), ("victim", "least_urgent")))
    ops = (replace(OPS[0], priority=1), *OPS[1:])
    assert [one["seq_id"] for row in rows(4, ops=ops, cache=cache) for one in row["preempted"]] == ["A"] * 3


def test_after_is_the_operation_at_whose_end_it_is_counted():
    assert (asked(4)["after"], asked(4)["num_layers"]) == ("20 engine steps", 2)


@pytest.mark.parametrize(
    ("sizes", "more", "sentence"),
    [
        ((0,), {}, "block_size is 0; here it may be 1 to 256."),
        ((4,), {"preemptions": ("swap", "Swap")}, f"There is no preemption 'Swap'; there is {', '.join(PREEMPTIONS)}."),
        (
            (16,),
            {"ops": (*OPS, Add("X", tuple("x" * 17)))},
            "With blocks of 16, “add X “x x x x x x x x …”” is refused.",
        ),
        (
            (4,),
            {"ops": (Submit("A", ("a",), 2), EngineSteps(1))},
            "Only words that were given can be played again, and A generates its own.",
        ),
    ],
)
def test_what_cannot_be_counted_is_refused_in_a_sentence(sizes, more, sentence):
    assert asked(*sizes, **more) == {"refused": sentence}


def test_step_that_another_run_has_no_work_left_for_is_no_refusal():
    assert "refused" not in asked(4, ops=(*OPS, EngineSteps(1)))
    assert "refused" in asked(4, ops=(*OPS, Abort("A")))


# --- the cost of a preemption ---

SMALL = Decoder(8, 2, hidden=16, feed_forward=24, num_heads=4, num_kv_heads=2, head_dim=16, dtype=torch.float32)


@pytest.mark.parametrize("block_size", [1, 4])
def test_every_way_back_gives_the_same_kv_and_says_what_it_copied(block_size):
    found = PreemptionCase(SMALL, block_size, kernels.device()).checked()
    assert (found["copies"], found["staged"]) == (2 * 4 * 8 // block_size, 2)
    assert found["error"] <= 1e-5


def test_bit_that_a_swap_loses_is_found_out(monkeypatch):
    real = CountedTransfers.reload

    def reload(self, host_blocks, blocks):
        real(self, host_blocks[::-1], blocks)

    monkeypatch.setattr(CountedTransfers, "reload", reload)
    with pytest.raises(AssertionError, match="staged: bits were lost"):
        PreemptionCase(SMALL, 4, kernels.device()).checked()
    with pytest.raises(AssertionError, match="a staged swap gave other bits"):
        asked(4, preemptions=("swap",))


def test_nothing_is_timed_where_no_kernel_is_compiled(monkeypatch):
    from pagedviz.runtime.probes.measured import preemption_cost

    monkeypatch.setattr(preemption_cost.launch, "COMPILED", False)
    monkeypatch.setattr(preemption_cost, "_measured", lambda: pytest.fail("timed"))
    answer = probes.answer(probe.PreemptionCost(), None)
    assert (answer["gpu"], answer["rows"]) == (None, [])
    assert answer["backend"] == kernels.backend_name()


@on_gpu
def test_measured_costs_of_a_preemption_are_right_and_in_order():
    shape = replace(SMALL, num_tokens=256, hidden=256, feed_forward=512, head_dim=64, dtype=torch.bfloat16)
    found = preemption_cost((1, 16), shape)
    assert [row["block_size"] for row in found] == [1, 16]
    for row in found:
        assert row["error"] < 1e-2
        assert row["bytes"] == 2 * 2 * 256 * 2 * 64 * 2
        assert (row["copies"], row["staged"]) == (2 * 4 * 256 // row["block_size"], 2)
        assert min(row["plain_ms"], row["staged_ms"], row["recompute_ms"]) > 0
