"""What a timetable counts, against counts made by hand; runs of the real scheduler, no kernel."""

import json
from dataclasses import replace

import pytest

from pagedviz.engine.policies import POLICIES
from pagedviz.engine.scheduler import Limits
from pagedviz.engine.timetable import gaps, idle_places, timetable
from pagedviz.play import Player
from pagedviz.probe import Probe, Timetable, Way
from pagedviz.runtime import probes
from pagedviz.runtime.probes.timetable import KINDS
from pagedviz.runtime.recording import Moment
from pagedviz.scenario import Abort, Append, CacheConfig, EngineSteps, Scenario, Submit

CACHE = CacheConfig(
    num_blocks=12, host_blocks=0, profile="vllm-v1", scheduler=Limits(max_num_batched_tokens=4, max_num_seqs=2)
)
WORDS = tuple("abcdefghijkl")


def played(*ops, cache=CACHE):
    player = Player(cache, 0, lambda seq_id: "x")
    return [happening.event for op in ops for happening in player.perform(op)]


def submit(seq_id, prompt, says):
    return Submit(seq_id, WORDS[:prompt], says, WORDS[:says])


def test_rows_say_who_was_there_who_came_who_computed_and_who_was_done():
    rows = timetable(played(submit("A", 2, 2), submit("B", 3, 1), submit("C", 1, 1), EngineSteps(9)))
    assert [row.unfinished for row in rows] == [("A", "B", "C"), ("A", "B", "C"), ("C",)]
    assert [row.admitted for row in rows] == [["A", "B"], [], ["C"]]
    assert [row.computed for row in rows] == [{"A": 2, "B": 2}, {"A": 1, "B": 1}, {"C": 1}]
    assert [row.prefilled for row in rows] == [["A", "B"], ["B"], ["C"]]
    assert [row.sampled for row in rows] == [("A",), ("A", "B"), ("C",)]
    assert [row.finished for row in rows] == [[], ["A", "B"], ["C"]]
    assert idle_places(rows, 2) == 1


@pytest.mark.parametrize("budget", range(1, 13))
@pytest.mark.parametrize("prompt", [1, 7, 12])
def test_prefix_is_read_once_a_chunk_and_scored_once_a_token(prompt, budget):
    cache = replace(CACHE, scheduler=replace(CACHE.scheduler, max_num_batched_tokens=budget))
    rows = timetable(played(submit("A", prompt, 1), EngineSteps(20), cache=cache))
    chunks = -(-prompt // budget)
    assert len(rows) == chunks
    # All chunks but the last end at a multiple of the budget: 1 + 2 + ... of them, and the whole.
    assert sum(row.read["A"] for row in rows) == budget * (chunks - 1) * chunks // 2 + prompt
    assert sum(row.scores["A"] for row in rows) == prompt * (prompt + 1) // 2
    assert all(row.num_tokens <= row.token_budget == budget for row in rows)


def test_gap_counts_everybodys_tokens():
    split_first = replace(CACHE, policies=(("batching", "prefill_first"),))
    ops = (submit("A", 2, 3), EngineSteps(2), submit("B", 6, 1), EngineSteps(9))
    assert gaps(timetable(played(*ops)), "A") == [(1, 1), (1, 4)]
    assert gaps(timetable(played(*ops, cache=split_first)), "A") == [(1, 1), (3, 7)]
    assert gaps(timetable(played(*ops)), "B") == []


def test_who_is_no_request_and_who_was_aborted_are_in_no_row():
    ops = (submit("A", 2, 3), submit("B", 2, 3), EngineSteps(1), Abort("A"), EngineSteps(1))
    rows = timetable(played(*ops))
    assert [row.unfinished for row in rows] == [("A", "B"), ("B",)]
    assert timetable(played(Append("A", ("x",)))) == []


def found(ops, *ways, cache=CACHE):
    return probes.answer(Timetable(ways), Moment(Scenario(0, cache, tuple(ops)), None, None, None, {}))


def test_other_ways_are_served_to_the_end_and_the_stage_so_far():
    ops = (submit("A", 2, 1), submit("B", 2, 3), submit("C", 2, 1), EngineSteps(1))
    answer = found(ops, Way(("static_batches",)), Way(("running_first",)), Way(("never_split",), 16))
    assert answer["requests"] == ["A", "B", "C"]
    assert [step["computed"] for step in answer["stage"]["steps"]] == [{"A": 2, "B": 2}]
    static, continuous, whole = answer["others"]
    assert [step["computed"] for step in static["steps"]] == [{"A": 2, "B": 2}, {"B": 1}, {"B": 1}, {"C": 2}]
    assert [step["computed"] for step in continuous["steps"]] == [{"A": 2, "B": 2}, {"B": 1, "C": 2}, {"B": 1}]
    assert (static["idle"], continuous["idle"]) == (3, 1)
    assert (static["budget"], whole["budget"]) == (4, 16)


def test_way_in_which_a_request_is_refused_is_no_comparison():
    ops = (submit("A", 6, 1), EngineSteps(1))
    assert "is refused" in found(ops, Way(("never_split",)))["refused"]
    assert len(found(ops, Way(("never_split",), 6))["others"][0]["steps"]) == 1


def test_what_is_refused_on_the_stage_too_is_left_out():
    answer = found((submit("A", 2, 1), submit("A", 3, 1), EngineSteps(1)), Way(("static_batches",)))
    assert answer["requests"] == ["A"]
    assert [step["computed"] for step in answer["others"][0]["steps"]] == [{"A": 2}]


def test_unknown_policies_budgets_and_words_are_refused():
    ops = (submit("A", 2, 1),)
    assert found(ops, Way(("fastest",)))["refused"] == "There is no policy fastest."
    assert "budget" in found(ops, Way((), -1))["refused"]
    assert "model" in found((Submit("A", ("a",), 2),))["refused"]


def test_every_policy_has_a_name_of_its_own_and_ways_survive_json():
    assert len(KINDS) == sum(map(len, POLICIES.values()))
    asked = Timetable((Way(("prefill_first", "never_split"), 32), Way(("static_batches",))))
    assert Probe.from_json(json.loads(json.dumps(asked.to_json()))) == asked
