"""What lesson 09 says of its run holds for every seed that a learner may choose: counted by the engines, no kernel."""

import re

import pytest

from pagedviz import lesson, probe
from pagedviz.runtime import probes
from pagedviz.runtime.running.recording import Moment

SEEDS = range(24)


@pytest.fixture(scope="module")
def played():
    return {seed: lesson.load("09_radix_and_blocks", seed) for seed in SEEDS}


def asked(taught, kind):
    """The probe's answer at the end, from the operations alone."""
    moment = Moment(taught.scenario, None, taught.pages[-1].outcome.after, None, {})
    return probes.answer(kind, moment)


@pytest.mark.parametrize("seed", SEEDS)
def test_tree_and_blocks_tie_and_pages_of_one_token_hit_the_tail_too(played, seed):
    requests = {r["seq_id"]: r for r in asked(played[seed], probe.Radix(1))["requests"]}
    for seq_id in "ABCD":
        row = requests[seq_id]
        assert row["pages"]["4"] == row["blocks"] <= row["pages"]["1"] < row["blocks"] + 4
    for seq_id in "BD":
        assert requests[seq_id]["blocks"] < requests[seq_id]["pages"]["1"]


@pytest.mark.parametrize("seed", SEEDS)
def test_longest_prefix_first_hits_more_by_every_cache_and_is_what_the_stage_does(played, seed):
    taught = played[seed]
    rows = {(row["page_size"], row["order"]): row for row in asked(taught, probe.Orders(("E", "F", "G"), 1))["rows"]}
    for size in (None, 4, 1):
        assert rows[size, "first_come"]["hit"] < rows[size, "longest_prefix_first"]["hit"]
    on_stage = [op.seq_id for op in taught.scenario.ops if op.to_json().get("add") in ("E", "F", "G")]
    assert on_stage == [seq_id for seq_id, _ in rows[None, "longest_prefix_first"]["served"]]
    hits = {r["seq_id"]: r["blocks"] for r in asked(taught, probe.Radix(1))["requests"]}
    assert rows[None, "longest_prefix_first"]["served"] == [[seq_id, hits[seq_id]] for seq_id in on_stage]
    assert hits[on_stage[-1]] == 0 < hits[on_stage[0]]


@pytest.mark.parametrize("seed", SEEDS)
def test_explanations_reckon_with_the_numbers_of_their_own_questions(played, seed):
    taught = played[seed]
    fine = asked(taught, probe.Radix(1))
    numbers = []
    for placed, seq_id in zip(taught.pages[:3], "BCD", strict=True):
        number = re.search(r"first (\d+) tokens", placed.page.question.text).group(1)
        upto = next(i for i, request in enumerate(fine["requests"], 1) if request["seq_id"] == seq_id)
        answer, explanation = placed.graded({"requests": fine["requests"][:upto]})
        assert re.search(rf"\b{number}\b", explanation)
        numbers.append(int(number) - answer)
    assert numbers[2] == 0 <= min(numbers) <= max(numbers) < 4


def test_seeds_ask_different_questions(played):
    assert {taught.pages[5].page.title for taught in played.values()} == {"F first", "G first"}
    assert len({len(taught.scenario.ops[0].tokens) for taught in played.values()}) == 4
