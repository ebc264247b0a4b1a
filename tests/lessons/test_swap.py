"""What the lesson on preemption claims, worked out by hand from the requests of its run, for several seeds."""

from dataclasses import replace

import pytest

from pagedviz import lesson
from pagedviz.engine.log.events.blocks import BlockAllocated, BlockFreed
from pagedviz.engine.log.events.requests import (
    RequestAdmitted,
    RequestPreempted,
    RequestScheduled,
    RequestSwappedIn,
    RequestWaits,
)
from pagedviz.engine.log.events.transfers import BlockReloaded, BlockSpilled
from pagedviz.probe import PreemptionCost, SwapOrRecompute
from pagedviz.run.play import Player
from pagedviz.runtime import probes
from pagedviz.runtime.running.recording import Moment
from pagedviz.scenario.operations import Submit

SEEDS = (None, 1, 2, 3, 5)  # A or B is preempted, with 16 tokens or 32; E comes back with 35, 36 or 37
SIZE, LAYERS = 4, 2


def loaded(seed):
    return lesson.load("11_swap_or_recompute", seed)


def asked(seed):
    """The questions in order, each by what it is about."""
    about = ("victim", "copies of 4", "copies of 1", "next", "back", "again", "fate", "E again")
    return dict(zip(about, [placed for placed in loaded(seed).pages if placed.page.question], strict=True))


def answered(seed, probe, index):
    """What a probe finds after `index` steps. It plays the operations again, and looks at no tensor of the run."""
    scenario = loaded(seed).scenario
    player, ops, steps = Player(scenario.cache, scenario.seed, None), [], 0
    for op in scenario.ops:
        if steps < index:
            ops.append(op)
            steps += sum(1 for _ in player.perform(op))
    assert steps == index
    return probes.answer(probe, Moment(replace(scenario, ops=tuple(ops)), None, None, None, {}))


def graded(seed, name):
    placed = asked(seed)[name]
    probe = placed.page.question.probe
    return placed.graded(answered(seed, probe, placed.graded_at) if probe else None)[0]


def requests(seed):
    """The first and the second request, and how many tokens each had when the pool was full."""
    first, second = [op for op in loaded(seed).scenario.ops if isinstance(op, Submit)][:2]
    preempted = happened(seed, "victim", RequestPreempted)[0]
    state = asked(seed)["victim"].outcome.after
    return first, second, preempted, state


def happened(seed, name, kind):
    return [event for event in asked(seed)[name].outcome.events if isinstance(event, kind)]


def test_seeds_give_other_answers():
    for name, answers in {
        "victim": {"A", "B"},
        "copies of 4": {16, 32},
        "copies of 1": {64, 128},
        "next": {"A", "B"},
        "again": {16, 32},
        "E again": {35, 36, 37},
    }.items():
        assert {graded(seed, name) for seed in SEEDS} == answers


@pytest.mark.parametrize("seed", SEEDS)
def test_words_are_enough_for_what_is_asked_of_them(seed):
    submits = [op for op in loaded(seed).scenario.ops if isinstance(op, Submit)]
    assert [op.seq_id for op in submits][2:] == ["C", "D", "E"]
    assert [op.num_tokens for op in submits][2:] == [2, 4, 4]
    assert submits[0].num_tokens == submits[1].num_tokens in (5, 6)
    assert submits[0].tokens[0] != submits[1].tokens[0]  # so that neither hits the other's


@pytest.mark.parametrize("seed", SEEDS)
def test_last_admitted_is_preempted_with_all_of_its_blocks_and_the_requester_runs_on(seed):
    first, second, preempted, state = requests(seed)
    assert (preempted.seq_id, preempted.requester, preempted.how) == (second.seq_id, first.seq_id, "swap")
    assert graded(seed, "victim") == second.seq_id
    spilled = happened(seed, "victim", BlockSpilled)
    assert len(spilled) == preempted.num_tokens // SIZE
    assert state.block_tables[second.seq_id] == (None,) * len(spilled)
    assert state.host_tables[second.seq_id] == tuple(range(len(spilled)))
    assert happened(seed, "victim", BlockAllocated)[-1].seq_id == first.seq_id


@pytest.mark.parametrize("seed", SEEDS)
def test_copies_are_two_times_layers_times_blocks(seed):
    tokens = requests(seed)[2].num_tokens
    assert graded(seed, "copies of 4") == 2 * LAYERS * tokens // 4
    assert graded(seed, "copies of 1") == 2 * LAYERS * tokens


@pytest.mark.parametrize("seed", SEEDS)
def test_no_new_request_is_admitted_before_the_swapped_one_though_it_would_fit(seed):
    first, second, _, _ = requests(seed)
    before = asked(seed)["next"].outcome.before
    assert before.waiting == ("C",)
    assert len(before.free_blocks) >= 1
    assert graded(seed, "next") == first.seq_id
    assert happened(seed, "next", RequestAdmitted) == []
    (waits,) = happened(seed, "next", RequestWaits)
    assert (waits.seq_id, waits.reason.split()[0]) == ("C", second.seq_id)
    assert waits.reason in asked(seed)["next"].graded()[1]
    order = [e for e in asked(seed)["back"].outcome.events if isinstance(e, RequestSwappedIn | RequestAdmitted)]
    assert [(type(event), event.seq_id) for event in order] == [
        (RequestSwappedIn, second.seq_id),
        (RequestAdmitted, "C"),
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_returning_sequence_names_other_blocks_and_computes_one_token(seed):
    second = requests(seed)[1].seq_id
    was = [event.block for event in happened(seed, "victim", BlockSpilled)]
    now = [event.block for event in happened(seed, "back", BlockReloaded)]
    row = asked(seed)["back"].outcome.after.block_tables[second]
    assert row[: len(was)] == tuple(now)
    elsewhere = sum(a != b for a, b in zip(was, now, strict=True))
    assert elsewhere > 0
    assert f"{elsewhere} of the other {len(was)} entries" in asked(seed)["again"].page.text
    assert graded(seed, "back") == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_all_ways_are_shown_and_recomputing_is_the_same_at_every_size_unless_it_hits(seed):
    tokens = requests(seed)[2].num_tokens
    assert graded(seed, "again") == tokens
    both = asked(seed)["fate"]
    assert both.page.shows == SwapOrRecompute((1, 4, 16))
    rows = answered(seed, both.page.shows, both.step)["rows"]
    assert {row["preempted"][0]["had"] for row in rows} == {tokens}
    swap, recompute, cached = rows[:3], rows[3:6], rows[6:]
    copies = [2 * LAYERS * tokens // size for size in (1, 4, 16)]
    assert [row["out"]["copies"] for row in swap] == [row["back"]["copies"] for row in swap] == copies
    assert len({row["out"]["bytes"] for row in swap}) == 1
    assert {(row["out"]["staged"], row["back"]["staged"]) for row in swap} == {(1, 1)}
    assert [row["again"] for row in swap + recompute] == [0, 0, 0, tokens, tokens, tokens]
    assert {row["out"]["copies"] + row["back"]["copies"] for row in recompute + cached} == {0}
    # The running sequence wrote three more tokens, and took their blocks from the tail.
    lost = [3, 4, 16]
    assert [(row["again"], row["hit"]) for row in cached] == [(n, tokens - n) for n in lost]


@pytest.mark.parametrize("seed", SEEDS)
def test_host_that_is_too_small_takes_nothing_and_all_known_words_are_computed_again(seed):
    (preempted,) = happened(seed, "fate", RequestPreempted)
    assert (preempted.seq_id, preempted.requester, preempted.how) == ("E", "D", "recompute")
    before = asked(seed)["fate"].outcome.before
    assert -(-preempted.num_tokens // SIZE) == 9 > len(before.host_free_blocks) == 8
    assert happened(seed, "fate", BlockSpilled) == []
    assert [event.seq_id for event in happened(seed, "fate", BlockFreed)] == ["E"] * 9
    assert graded(seed, "fate") == "All are freed, and none moves"
    assert "a swap needs 9 host blocks, and 8 are free" in asked(seed)["fate"].graded()[1]
    again = next(e for e in happened(seed, "E again", RequestScheduled) if e.seq_id == "E")
    assert again.num_tokens == preempted.num_tokens + 1 == graded(seed, "E again")


@pytest.mark.parametrize("seed", SEEDS)
def test_everybody_finishes_and_nothing_is_refused(seed):
    taught = loaded(seed)
    assert taught.pages[-1].page.shows == PreemptionCost()
    player = Player(taught.scenario.cache, taught.scenario.seed, None)
    played = [happening for op in taught.scenario.ops for happening in player.perform(op)]
    assert [h.event for h in played if h.refused or h.broken] == []
    last = played[-1].snapshot
    assert {s: len(r.output) - r.num_tokens for s, r in last.requests.items()} == dict.fromkeys("ABCDE", 0)
    assert len(last.free_blocks) == 12


def test_profile_itself_recomputes_and_the_lesson_says_so():
    taught = loaded(None)
    assert taught.scenario.cache.profile == "vllm-v1"
    assert taught.scenario.cache.policies == (("preemption", "swap"),)
    assert "the profile `vllm-v1` has the policy `recompute`" in asked(None)["again"].page.text
