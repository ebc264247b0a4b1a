"""What a timetable counts, against counts made by hand; runs of the real scheduler, no kernel."""

import json
from dataclasses import replace

import pytest

from pagedviz.engine.log.events.blocks import Written
from pagedviz.engine.policies.limits import Limits
from pagedviz.engine.policies.profiles import POLICIES
from pagedviz.engine.requests.timetable import idle_seats, timetable, waits
from pagedviz.probe import Chunks, Launch, Probe, Timetable, Way
from pagedviz.run.play import planner
from pagedviz.runtime import probes
from pagedviz.runtime.probes.what_if.timetable import KINDS
from pagedviz.runtime.running.recording import Moment
from pagedviz.runtime.running.runner import Runner
from pagedviz.scenario.operations import Abort, Append, EngineSteps, Submit
from pagedviz.scenario.scenario import Scenario
from pagedviz.scenario.settings import CacheConfig
from tests.runtime.runner.runner_cases import ask

CACHE = CacheConfig(
    num_blocks=12, host_blocks=0, profile="vllm-v1", scheduler=Limits(max_num_batched_tokens=4, max_num_seqs=2)
)
WORDS = tuple("abcdefghijkl")


def played(*ops, cache=CACHE):
    player = planner(cache, 0)
    return [happening.event for op in ops for happening in player.perform(op)]


def submit(seq_id, prompt, says):
    return Submit(seq_id, WORDS[:prompt], says, WORDS[:says])


def test_steps_say_which_requests_were_there_came_computed_and_were_done():
    rows = timetable(played(submit("A", 2, 2), submit("B", 3, 1), submit("C", 1, 1), EngineSteps(9)))
    assert [row.unfinished for row in rows] == [("A", "B", "C"), ("A", "B", "C"), ("C",)]
    assert [row.admitted for row in rows] == [["A", "B"], [], ["C"]]
    assert [row.computed for row in rows] == [{"A": 2, "B": 2}, {"A": 1, "B": 1}, {"C": 1}]
    assert [row.prefilled for row in rows] == [["A", "B"], ["B"], ["C"]]
    assert [row.sampled for row in rows] == [("A",), ("A", "B"), ("C",)]
    assert [row.finished for row in rows] == [[], ["A", "B"], ["C"]]
    assert idle_seats(rows, 2) == 1


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


def test_wait_has_the_steps_from_one_word_to_the_next_and_the_tokens_of_all_requests_in_them():
    prompts_first = replace(CACHE, policies=(("batching", "prefill_first"),))
    ops = (submit("A", 2, 3), EngineSteps(2), submit("B", 6, 1), EngineSteps(9))

    def waited(seq_id, cache=CACHE):
        return [[row.num_tokens for row in wait] for wait in waits(timetable(played(*ops, cache=cache)), seq_id)]

    assert waited("A") == [[1], [4]]
    assert waited("A", prompts_first) == [[1], [4, 2, 1]]
    assert waited("B") == []


def test_sequences_without_a_request_and_aborted_requests_are_in_no_step():
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
    assert found(ops, Way(("never_split",)))["refused"] == "By never_split other requests are refused: A."
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


def chunks(ops, *ways, seq_id="B", cache=CACHE):
    return probes.answer(Chunks(seq_id, ways), Moment(Scenario(0, cache, tuple(ops)), None, None, None, {}))


def test_chunks_cost_reads_and_spare_waits():
    ops = (submit("A", 2, 9), EngineSteps(2), submit("B", 9, 2), EngineSteps(1))
    ways = (Way(("prefill_first", "never_split"), 16), Way(("prefill_first",)), Way(("running_first",)))
    whole, first, beside = chunks(ops, *ways)["others"]
    # In one piece; 4 + 4 + 1; 3 + 3 + 3 beside A's one.
    assert [table["chunks"] for table in (whole, first, beside)] == [1, 3, 3]
    assert [table["read"] for table in (whole, first, beside)] == [9, 4 + 8 + 9, 3 + 6 + 9]
    assert [table["scores"] for table in (whole, first, beside)] == [45, 45, 45]
    assert [table["first_word"] for table in (whole, first, beside)] == [1, 3, 3]
    assert [table["wait"]["computed"] for table in (whole, first, beside)] == [[9, 2], [4, 4, 1, 2], [4]]
    assert [table["most"] for table in (whole, first, beside)] == [9, 4, 4]


def test_chunks_of_unknown_and_aborted_requests_are_refused_and_a_request_alone_keeps_none_waiting():
    way = Way(("running_first",))
    assert "There is no request B" in chunks((submit("A", 2, 2),), way)["refused"]
    assert "aborted" in chunks((submit("B", 9, 2), EngineSteps(1), Abort("B")), way)["refused"]
    assert chunks((submit("B", 9, 2),), way)["others"][0]["wait"] == {"steps": 0, "tokens": 0, "computed": []}


@pytest.mark.slow
def test_read_is_what_the_launches_are_given():
    runner = Runner(replace(CACHE, scatter=True), 0)
    ops = (submit("A", 2, 4), submit("B", 7, 1), EngineSteps(4))
    happened = [happening for op in ops for happening, _ in runner.perform(op)]
    for i, happening in enumerate(happened, 1):
        if isinstance(happening.event, Written):
            launch = ask(runner, Launch(), i)
            row = timetable(h.event for h in happened[:i])[-1]
            asks = [q >= 0 for q in launch["slot_mapping"]]
            for seq_id, n, start in zip(launch["seq_ids"], launch["seq_lens"], launch["query_start_loc"], strict=False):
                if asks[start]:
                    assert row.read[seq_id] == n
            assert sum(asks) == row.num_tokens
