"""What the lesson on beam search says holds for every seed that a learner may choose; no kernel."""

import math
import re

import pytest

from pagedviz import lesson
from pagedviz.engine.log.events.blocks import BlockAllocated, BlockCopied, TokensWritten
from pagedviz.lesson import Run
from pagedviz.model import sampling
from pagedviz.model.dense_model import DenseModel
from pagedviz.model.vocabulary import VOCABULARY
from pagedviz.scenario.settings import CacheConfig

SEEDS = range(24)
SIZE, BEAMS = 4, 3


@pytest.fixture(scope="module")
def taught():
    return {seed: lesson.load("07_beam_search", seed) for seed in SEEDS}


def by_title(loaded):
    return {placed.page.title: placed for placed in loaded.pages}


def numbers(text):
    return [int(number) for number in re.findall(r"\b\d+\b", text)]


def only_named_by(state, names):
    others = {block for seq_id, row in state.block_tables.items() if seq_id not in names for block in row}
    return {block for name in names for block in state.block_tables[name]} - others


@pytest.mark.parametrize("seed", SEEDS)
def test_two_samples_are_drawn_by_chance_behind_a_prompt_that_is_computed_once(taught, seed):
    scenario = taught[seed].scenario
    placed = by_title(taught[seed])["Two answers, by chance"]
    state = placed.outcome.before
    prompt = scenario.ops[0].tokens
    logits = DenseModel(scenario.cache, seed).logits(prompt)
    assert dict(state.requests["S"].outputs) == {
        seq_id: (sampling.greedy(sampling.noised(logits, seed, seq_id, len(prompt) - 1)),) for seq_id in ("S.1", "S.2")
    }
    assert state.block_tables["S.1"] == state.block_tables["S.2"]
    shared = len(prompt) % SIZE > 0
    assert placed.graded()[0] == ("S.1, which writes first" if shared else "Nobody")
    sampled = by_title(taught[seed])["Parallel sampling"]
    used = len(prompt) // SIZE + 2
    assert numbers(sampled.page.text)[-3:-1] == [used, used + len(prompt) // SIZE]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_three_likeliest_of_all_that_could_be_said_stay_and_it_is_clear_which_beam_has_none(taught, seed):
    scenario, placed = taught[seed].scenario, by_title(taught[seed])["Who goes on?"]
    state, model = placed.outcome.before, DenseModel(scenario.cache, seed)
    request = state.requests["A"]
    every = sorted(
        (
            (request.scores[seq_id] + log, seq_id, token)
            for seq_id in request.outputs
            for token, log in zip(VOCABULARY, sampling.log_softmax(model.logits(state.tokens[seq_id])), strict=True)
        ),
        reverse=True,
    )
    pruned = [seq_id for seq_id in request.outputs if seq_id not in {parent for _, parent, _ in every[:BEAMS]}]
    assert placed.graded()[0] == " and ".join(pruned) != ""
    assert f"{every[BEAMS - 1][0]:.2f}" != f"{every[BEAMS][0]:.2f}"
    for score, _, token in every[:BEAMS]:
        assert f"“{token}”\u00a0−{-score:.2f}" in placed.page.text


@pytest.mark.parametrize("seed", SEEDS)
def test_forks_take_no_block_and_each_pruned_beam_frees_the_one_that_it_alone_had(taught, seed):
    placed = by_title(taught[seed])["Pruned"]
    before, after = placed.outcome.before, placed.outcome.after
    pruned = [seq_id for seq_id in before.block_tables if seq_id not in after.block_tables]
    freed = only_named_by(before, pruned)
    assert set(before.ref_counts) - set(after.ref_counts) == freed == set(after.free_blocks[: len(freed)])
    assert len(freed) == len(pruned)
    assert placed.graded()[0] == len({block for row in after.block_tables.values() for block in row})
    assert placed.graded()[0] == len(before.ref_counts) - len(pruned)


@pytest.mark.parametrize("seed", SEEDS)
def test_all_but_the_last_that_write_into_a_shared_block_copy_it_and_what_was_freed_goes_out_first(taught, seed):
    pages = by_title(taught[seed])
    for title in ("Three beams", "Freed at once"):
        placed = pages[title]
        state = placed.outcome.before
        rows = list(state.block_tables.values())
        seq_len = max(map(len, state.tokens.values()))
        last = {row[-1] for row in rows} if seq_len % SIZE else set()
        assert placed.graded()[0] == sum(sum(row[-1] == block for row in rows) - 1 for block in last)
    head, *_ = pages["Freed at once"].outcome.before.free_blocks
    taken = [event for event in placed.outcome.events if isinstance(event, BlockCopied | BlockAllocated)]
    assert head == (taken[0].target if isinstance(taken[0], BlockCopied) else taken[0].block)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_sharing_saves_is_counted_from_the_tables_and_the_forks(taught, seed):
    placed = by_title(taught[seed])["A tree of blocks"]
    state, prompt = placed.outcome.before, taught[seed].scenario.ops[0].tokens
    seq_len = len(prompt) + 2
    used = len({block for row in state.block_tables.values() for block in row})
    chosen = by_title(taught[seed])["Pruned"].outcome
    forks = sum(event.kind == "SequenceForked" for event in chosen.events)
    events = events_of(taught[seed])[: placed.step]
    copied = sum(e.num_slots for e in events if isinstance(e, BlockCopied) and e.seq_id.startswith("A."))
    assert numbers(placed.page.text) == [
        *(used, BEAMS * math.ceil(seq_len / SIZE)),
        *((BEAMS - 1) * len(prompt) + forks * (len(prompt) + 1), copied),
    ]
    assert used < BEAMS * math.ceil(seq_len / SIZE)


@pytest.mark.parametrize("seed", SEEDS)
def test_beams_that_are_new_requests_compute_what_is_in_no_full_block(taught, seed):
    placed = by_title(taught[seed])["A tree of blocks"]
    seq_len = len(taught[seed].scenario.ops[0].tokens) + 2
    assert placed.graded()[0] == BEAMS * (seq_len - (seq_len - 1) // SIZE * SIZE)


def test_seeds_ask_different_questions(taught):
    for title in (
        "Two answers, by chance",
        "Three beams",
        "Who goes on?",
        "Pruned",
        "Freed at once",
        "A tree of blocks",
    ):
        assert len({by_title(loaded)[title].graded()[0] for loaded in taught.values()}) > 1, title


def test_a_run_stops_in_the_middle_of_an_operation_and_goes_on_before_the_next():
    whole, halves = Run(CacheConfig(), 0), Run(CacheConfig(), 0)
    for run in (whole, halves):
        run.submit("A", "Four score and seven", max_tokens=3)
    whole.step(2)
    halves.step(2, until="TokensWritten")
    assert isinstance(halves.events[-1], TokensWritten)
    assert halves.state.seq_len("A") == 4
    assert halves.events == whole.events[: len(halves.events)] != whole.events
    halves.append("B", "refused, but the rest comes first")
    assert halves.events[:-1] == whole.events
    assert len(halves.ops) == len(whole.ops) + 1


def events_of(loaded):
    run = Run(loaded.scenario.cache, loaded.scenario.seed)
    for op in loaded.scenario.ops:
        run._do(op)
    return run.events
