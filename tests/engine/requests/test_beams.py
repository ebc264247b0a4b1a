"""Requests of several sequences: samples and beams fork from one prompt, are pruned, and move together."""

import itertools

import pytest

from pagedviz.engine.log.errors import DuplicateSequence, ForkUnsupported, NeverFits, OverBudget, TooWide
from pagedviz.engine.policies.limits import Limits
from pagedviz.engine.requests import beams, outputs
from tests.engine.requests.request_cases import WatchedScheduler, values

PROMPT = list("abcdef")


def v0(num_blocks: int = 12, **settings) -> WatchedScheduler:
    return WatchedScheduler(num_blocks, profile="vllm-v0", prefix_caching=False, **settings)


def scores(tokens: list) -> list[tuple[str, float]]:
    """What the model of the tests could say next: three letters, each with a log-probability of its own."""
    last = values(tokens)[-1]
    return sorted((("xyz"[i], -1.0 - last[i] / 100) for i in range(3)), key=lambda candidate: -candidate[1])


def search(prompt: list, num_tokens: int, num_beams: int) -> list[tuple[list, float]]:
    """Beam search over plain lists of tokens."""
    alive = [([], 0.0)]
    for _ in range(num_tokens):
        grown = [([*out, t], score + p) for out, score in alive for t, p in scores([*prompt, *out])]
        alive = sorted(grown, key=lambda beam: -beam[1])[:num_beams]
    return alive


def beam_step(scheduler: WatchedScheduler, name: str = "A") -> None:
    scheduler.manager.engine_step += 1
    scheduler.schedule()
    scheduler.write()
    outputs.fork(scheduler)
    due = [seq_id for seq_id in outputs.due(scheduler) if scheduler.request_of(seq_id).beams > 1]
    said = {seq_id: ("t",) for seq_id in outputs.due(scheduler) if seq_id not in due}
    if due:
        outputs.expand(scheduler, name, {s: scores([*PROMPT, *scheduler.requests[name].outputs[s]]) for s in due})
    outputs.sampled(scheduler, said)


def finished(scheduler: WatchedScheduler) -> WatchedScheduler:
    for _ in range(200):
        if not scheduler.has_work:
            return scheduler
        beam_step(scheduler)
    raise AssertionError("it never ends")


def test_likeliest_are_chosen_from_all_beams_together():
    kept = beams.likeliest({"x": -1, "y": -2}, {"x": [("a", -1), ("b", -3)], "y": [("c", -0.5), ("d", -9)]}, 2)
    assert kept == [beams.Beam("x", "a", -2), beams.Beam("y", "c", -2.5)]


@pytest.mark.parametrize("num_beams", [2, 3, 4])
def test_beams_are_those_of_a_search_without_a_cache(num_beams):
    scheduler = v0(40)
    scheduler.submit("A", PROMPT, 7, beams=num_beams)
    request = finished(scheduler).requests["A"]
    expected = search(PROMPT, 7, num_beams)
    assert list(request.outputs.values()) == [out for out, _ in expected]
    assert list(request.scores.values()) == pytest.approx([score for _, score in expected])
    assert sorted(scheduler.free_blocks) == list(range(40))


@pytest.mark.parametrize("preemption", ["swap", "recompute"])
@pytest.mark.parametrize("host_blocks", [0, 4, 20])
def test_beams_that_were_preempted_end_as_if_they_had_not_been(preemption, host_blocks):
    scheduler = v0(9, host_blocks=host_blocks, preemption=preemption)
    scheduler.submit("B", list("uvwxyz"), 12)
    scheduler.submit("A", PROMPT, 6, beams=3)
    finished(scheduler)
    assert any(e.kind == "RequestPreempted" and e.seq_id == "A" for e in scheduler.events)
    assert list(scheduler.requests["A"].outputs.values()) == [out for out, _ in search(PROMPT, 6, 3)]
    assert sorted(scheduler.free_blocks) == list(range(9))


def test_a_pruned_beam_lets_go_at_once():
    scheduler = v0()
    scheduler.submit("A", PROMPT, 8, beams=2)
    finished(scheduler)
    chosen = [i for i, e in enumerate(scheduler.events) if e.kind == "BeamsChosen" and e.pruned]
    assert chosen
    for i in chosen:
        pruned = list(scheduler.events[i].pruned)
        after = itertools.takewhile(lambda e: e.kind not in ("StepStarted", "RequestFinished"), scheduler.events[i:])
        assert [e.seq_id for e in after if e.kind == "SequenceFreed"] == pruned


def test_samples_share_the_prompt_and_nothing_else():
    scheduler = v0()
    scheduler.submit("A", PROMPT, 5, samples=3)
    for _ in range(4):
        scheduler.step(lambda seq_id: seq_id[-1])
    tables = scheduler.table
    assert [row[0] for row in tables.values()] == [0, 0, 0]
    assert len({row[1] for row in tables.values()}) == 3
    assert scheduler.requests["A"].outputs == {f"A.{i}": [str(i)] * 4 for i in (1, 2, 3)}


def test_a_group_moves_to_the_host_as_a_whole():
    scheduler = v0(8, host_blocks=8, preemption="swap")
    scheduler.submit("B", list("uvwxyz"), 12)
    scheduler.submit("A", PROMPT, 5, samples=3)
    while not scheduler.swapped:
        scheduler.step()
    state = scheduler.snapshot()
    assert scheduler.swapped == ["A"]
    for seq_id in scheduler.requests["A"].outputs:
        assert state.block_tables[seq_id].count(None) == len(state.block_tables[seq_id])
    # What they shared they still share.
    assert len({row[0] for seq_id, row in state.host_tables.items() if seq_id != "B"}) == 1


def test_a_group_is_scheduled_whole_or_not_at_all():
    scheduler = v0(20, limits=Limits(max_num_batched_tokens=6), chunking="split", batching="running_first")
    scheduler.submit("A", PROMPT, 4, samples=4)
    scheduler.submit("B", list("uvwxyz"), 4, samples=3)
    while scheduler.has_work:
        scheduled = scheduler.step()
        for name, width in (("A", 4), ("B", 3)):
            assert sum(seq_id.startswith(f"{name}.") for seq_id in scheduled) in (0, 1, width)


def test_sequences_count_as_seats():
    scheduler = v0(20, limits=Limits(max_num_seqs=4))
    scheduler.submit("A", PROMPT, 3, samples=3)
    scheduler.submit("B", PROMPT, 3, samples=2)
    scheduler.step()
    assert scheduler.running == ["A"]
    waits = next(e for e in scheduler.events if e.kind == "RequestWaits")
    assert waits.reason == "3 sequences run already, it needs 2, and max_num_seqs is 4"


def test_what_can_never_run_is_refused_at_once():
    scheduler = v0(6, limits=Limits(max_num_seqs=4))
    with pytest.raises(TooWide, match="5 sequences in one step, and a step takes 4"):
        scheduler.submit("A", PROMPT, 3, samples=5)
    # One full block of the prompt is shared; each of three has two of its own.
    with pytest.raises(NeverFits, match="needs 7 blocks by itself"):
        scheduler.submit("A", PROMPT, 5, beams=3)
    with pytest.raises(ForkUnsupported):
        WatchedScheduler(20).submit("A", PROMPT, 3, samples=2)
    assert scheduler.requests == {}


def test_a_group_that_could_not_be_computed_again_at_once_is_refused():
    """Three samples of five tokens are computed again by a launch of 12, after their prompt."""
    scheduler = v0(30, limits=Limits(max_num_batched_tokens=11))
    with pytest.raises(OverBudget, match="may grow to 12 tokens"):
        scheduler.submit("A", PROMPT, 5, samples=3)
    scheduler.submit("B", PROMPT, 4, samples=3)


def test_a_group_waits_where_the_budget_has_too_little_for_all_of_it():
    scheduler = v0(30, limits=Limits(max_num_batched_tokens=3), chunking="split", batching="running_first")
    scheduler.submit("B", ["b"], 9)
    scheduler.submit("A", ["a"], 4, samples=3)
    scheduler.step()
    assert scheduler.step() == {"B": 1}


def test_names_of_the_sequences_are_taken_with_the_request():
    scheduler = v0()
    scheduler.submit("A", PROMPT, 3, samples=2)
    with pytest.raises(DuplicateSequence):
        scheduler.submit("A.2", PROMPT, 3)
    scheduler.manager.add("B.1", PROMPT)
    with pytest.raises(DuplicateSequence):
        scheduler.submit("B", PROMPT, 3, beams=2)


def test_an_aborted_group_owns_nothing():
    scheduler = v0()
    scheduler.submit("A", PROMPT, 5, samples=3)
    scheduler.step()
    scheduler.step()
    scheduler.abort("A")
    assert scheduler.table == {}
    assert sorted(scheduler.free_blocks) == list(range(12))
