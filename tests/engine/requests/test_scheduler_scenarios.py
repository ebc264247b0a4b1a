"""The ids that the real schedulers print: rows of `engine_scenarios.jsonl`, each with the engine that printed it."""

import pytest

from pagedviz.engine.log.errors import NeverAdmitted, NeverFits
from pagedviz.engine.policies.admission import AdmissionInput, first_chunk_fits, whole_prompt_fits
from pagedviz.engine.policies.limits import Limits
from tests.engine.requests.request_cases import WatchedScheduler

EQUAL = ["t"] * 40  # one token, so that all prompts are prefixes of one another


def kinds(scheduler, *wanted):
    return [event for event in scheduler.events if event.kind in wanted]


def test_S13_the_watermark_is_waived_for_a_request_alone_and_kept_beside_others():
    """Printed by vLLM 0.33.0."""
    scheduler = WatchedScheduler(11, limits=Limits(1_000, watermark=0.3))
    scheduler.submit("a", range(28), 4)
    scheduler.submit("b", range(100, 104), 4)
    assert scheduler.step() == {"a": 28}
    assert len(scheduler.table["a"]) == 7
    assert scheduler.waiting == ["b"]
    (waits,) = kinds(scheduler, "RequestWaits")
    assert waits.reason == "it needs 1 free block, and the pool has 3, of which 3 should stay free"


def test_S14_with_the_gate_the_whole_prompt_must_fit_and_without_it_the_first_chunk():
    """Printed by vLLM 0.33.0, to which such a prompt may be submitted; ours says at once that it can never fit."""
    asked = AdmissionInput(now=2, prompt=6, free=5, total=5, watermark=0, alone=True, expected_outputs=0)
    assert first_chunk_fits(asked) == ""
    assert whole_prompt_fits(asked) == "it needs 6 free blocks, and the pool has 5"
    scheduler = WatchedScheduler(6, limits=Limits(8))
    scheduler.manager.admit("a", range(24), None, 8)
    assert scheduler.table == {"a": [1, 2]}
    scheduler.manager.write(["a"])
    scheduler.manager.free("a")
    assert scheduler.free_blocks == [3, 4, 5, 2, 1]
    before = scheduler.snapshot()
    with pytest.raises(NeverFits):
        scheduler.submit("b", range(100, 124), 1)
    assert scheduler.snapshot() == before


def test_S14_the_gate_keeps_a_prompt_waiting_that_fits_only_in_part():
    """The same with a pool in which it fits once another is gone."""
    for admission, admitted in (("whole_prompt_fits", {}), ("first_chunk_fits", {"b": 4})):
        scheduler = WatchedScheduler(8, limits=Limits(12), admission=admission)
        scheduler.manager.add("held", range(50, 58))
        scheduler.submit("b", range(100, 124), 1)
        scheduler.limits = Limits(4)
        assert scheduler.step() == admitted


def test_S15_a_prompt_in_chunks_takes_and_hashes_blocks_as_they_are_scheduled():
    """Printed by vLLM 0.33.0."""
    scheduler = WatchedScheduler(9, limits=Limits(6))
    prompt = list(range(14))
    scheduler.submit("a", prompt, 3)
    tables, hashed = [], []
    for chunk in (6, 6, 2):
        assert scheduler.step() == {"a": chunk}
        tables.append(scheduler.table["a"])
        hashed.append(set(scheduler.snapshot().cached))
        if len(tables) == 2:
            assert len(scheduler.manager.longest_prefix(prompt)) * 4 == 12
    assert tables == [[1, 2], [1, 2, 3], [1, 2, 3, 4]]
    assert hashed == [{1}, {1, 2, 3}, {1, 2, 3}]


def test_S18_a_preempted_request_finds_its_own_blocks_and_outputs_again():
    """Printed by vLLM 0.33.0: freed, computed tokens 0, admitted again with all of its tokens."""
    scheduler = WatchedScheduler(9)
    scheduler.submit("a", range(10), 6)
    for _ in range(4):
        scheduler.step()
    assert scheduler.manager.sequences["a"].seq_len == 13
    request = scheduler.requests["a"]
    scheduler._preempt(request, request)
    assert scheduler.free_blocks == [4, 5, 6, 7, 8, 3, 2, 1]
    assert (scheduler.waiting, len(request.tokens)) == (["a"], 14)
    assert scheduler.step() == {"a": 2}  # 12 of 14 were hit
    assert scheduler.table["a"] == [1, 2, 3, 4]


@pytest.mark.parametrize(("used", "needed", "verdict"), [
    (0, 7, "OK"), (0, 8, "OK"), (0, 9, "NEVER"),
    (3, 5, "OK"), (3, 6, "LATER"), (3, 8, "LATER"), (3, 9, "NEVER"),
])  # fmt: skip
def test_S33_v0_says_ok_later_or_never(used, needed, verdict):
    """Printed by vLLM 0.6.4.post1: 10 blocks, watermark 0.2."""
    scheduler = WatchedScheduler(10, profile="vllm-v0", prefix_caching=False, limits=Limits(1_000, watermark=0.2))
    if used:
        scheduler.manager.add("held", range(used * 4))
    if verdict == "NEVER":
        with pytest.raises(NeverAdmitted) as refused:
            scheduler.submit("r", range(needed * 4), 1)
        assert refused.value.numbers == {"seq_id": "r", "needed": needed, "watermark": 2, "total": 10}
    else:
        scheduler.submit("r", range(needed * 4), 1)
        assert bool(scheduler.step()) == (verdict == "OK")


def test_S36_when_the_host_has_no_room_the_tokens_are_computed_again():
    """vLLM 0.6.4.post1 cannot swap out (3 full blocks and 1 touched > 2) and raises; ours falls back to recompute."""
    scheduler = WatchedScheduler(6, host_blocks=2, profile="vllm-v0", prefix_caching=False, preemption="swap")
    scheduler.submit("a", range(4), 9)
    scheduler.submit("b", range(10, 22), 3)
    scheduler.step()
    scheduler.step()
    assert len(scheduler.table["b"]) == 4
    request = scheduler.requests["b"]
    scheduler._preempt(request, scheduler.requests["a"])
    (event,) = kinds(scheduler, "RequestPreempted")
    assert (event.how, scheduler.waiting, scheduler.swapped) == ("recompute", ["b"], [])
    assert len(request.tokens) == 14
    assert kinds(scheduler, "BlockSpilled") == []


def test_S40_a_request_that_cannot_grow_and_is_the_last_preempts_itself():
    """Printed by nano-vllm bb823b3."""
    scheduler = WatchedScheduler(5, profile="nano-vllm")
    scheduler.submit("A", range(7), 12)
    scheduler.submit("B", range(10, 17), 12)
    scheduler.step()
    scheduler.step()
    assert scheduler.step() == {"A": 1}
    assert scheduler.table == {"A": [0, 1, 4]}
    assert (scheduler.free_blocks, scheduler.waiting) == ([3, 2], ["B"])
    (event,) = kinds(scheduler, "RequestPreempted")
    assert (event.seq_id, event.requester) == ("B", "B")
    tables = []
    while "A" in scheduler.table:
        tables.append(scheduler.table)
        scheduler.step()
    assert all(set(table) == {"A"} for table in tables)
    assert {len(table["A"]): table["A"] for table in tables} == {3: [0, 1, 4], 4: [0, 1, 4, 3], 5: [0, 1, 4, 3, 2]}


def test_S41_only_the_first_prompt_of_a_step_is_split():
    """Printed by nano-vllm bb823b3."""
    scheduler = WatchedScheduler(20, profile="nano-vllm", limits=Limits(6))
    scheduler.submit("A", range(10), 4)
    scheduler.submit("B", range(10, 15), 4)
    assert [scheduler.step() for _ in range(4)] == [{"A": 6}, {"A": 4}, {"B": 5}, {"A": 1, "B": 1}]


def test_S45_a_block_that_is_being_filled_is_hit_in_the_same_step_and_the_last_is_preempted():
    """Printed by vLLM 0.33.0's scheduler."""
    scheduler = WatchedScheduler(6)
    scheduler.submit("A", EQUAL[:7], 9)
    scheduler.submit("B", EQUAL[:6], 9)
    assert scheduler.step() == {"A": 7, "B": 2}
    assert scheduler.table == {"A": [1, 2], "B": [1, 3]}
    (hit,) = kinds(scheduler, "BlockHit")
    assert (hit.seq_id, hit.block, hit.computed) == ("B", 1, False)
    scheduler.step()
    scheduler.step()
    assert scheduler.table == {"A": [1, 2, 4], "B": [1, 3]}
    scheduler.step()
    assert scheduler.table == {"A": [1, 2, 4], "B": [1, 3, 5]}
    scheduler.step()
    scheduler.step()
    assert scheduler.step() == {"A": 1}
    assert scheduler.table == {"A": [1, 2, 4, 5]}
    assert (scheduler.waiting, scheduler.free_blocks) == (["B"], [3])
    assert len(scheduler.requests["B"].tokens) == 12


def test_S46_the_budget_is_one_for_all_and_splits_prompts():
    """Printed by vLLM 0.33.0's scheduler."""
    scheduler = WatchedScheduler(40, limits=Limits(8, max_num_seqs=4))
    scheduler.submit("A", EQUAL[:10], 9)
    scheduler.submit("B", EQUAL[:5], 9)
    assert scheduler.step() == {"A": 8}
    assert scheduler.waiting == ["B"]
    assert scheduler.step() == {"A": 2, "B": 1}
    assert scheduler.table == {"A": [1, 2, 3], "B": [1, 4]}
    assert [scheduler.step() for _ in range(2)] == [{"A": 1, "B": 1}] * 2
    assert scheduler.table["A"] == [1, 2, 3]
    scheduler.step()
    assert scheduler.table["A"] == [1, 2, 3, 5]
