"""What the lesson on speculative decoding says holds for every seed that a learner may choose; no kernel."""

import random
import re
from dataclasses import replace

import pytest

from pagedviz import lesson
from pagedviz.engine.log.events.blocks import BlockFreed
from pagedviz.engine.log.events.drafts import DraftsVerified
from pagedviz.engine.log.events.requests import TokensSampled
from pagedviz.engine.policies.limits import Speculation
from pagedviz.engine.requests.timetable import timetable
from pagedviz.model import drafter, sampling
from pagedviz.model.dense_model import DenseModel
from pagedviz.run.play import planner
from pagedviz.scenario.operations import EngineSteps, Submit

SEEDS = range(24)
SIZE, DRAFTS, CUT, LOAD, OUTPUTS = 4, 3, 0.4, 3, 5


@pytest.fixture(scope="module")
def taught():
    return {seed: lesson.load("16_speculative_decoding", seed) for seed in SEEDS}


@pytest.fixture(scope="module")
def models(taught):
    return {seed: DenseModel(loaded.scenario.cache, seed) for seed, loaded in taught.items()}


def by_title(loaded):
    return {placed.page.title: placed for placed in loaded.pages}


def says(model, prompt, number):
    tokens = list(prompt)
    for _ in range(number):
        tokens.append(sampling.greedy(model.logits(tokens)))
    return tokens[len(prompt) :]


def guessed(loaded, model, prompt):
    """The drafts behind a prompt and the model's next word, and how many of them are right."""
    first, *said = says(model, prompt, DRAFTS + 1)
    drafts = drafter.drafts(loaded.scenario.cache, loaded.scenario.seed, [*prompt, first], DRAFTS)
    right = [token == word for (token, _), word in zip(drafts, said, strict=True)]
    return drafts, [*right, False].index(False)


def sure(drafts):
    return [*(confidence >= CUT for _, confidence in drafts), False].index(False)


def prompts(loaded):
    return {op.seq_id: op.tokens for op in loaded.scenario.ops if isinstance(op, Submit)}


def happened(cache, seed, ops):
    player = planner(cache, seed)
    return [happening.event for op in ops for happening in player.perform(op)]


def served(loaded, speculation):
    ops = [op for op in loaded.scenario.ops if isinstance(op, Submit)]
    cache = replace(loaded.scenario.cache, speculation=speculation)
    return happened(cache, loaded.scenario.seed, [*ops, EngineSteps(50)])


def words(events):
    said = {}
    for event in events:
        if isinstance(event, TokensSampled):
            for seq_id, tokens in zip(event.seq_ids, event.tokens, strict=True):
                said[seq_id] = said.get(seq_id, ()) + tokens
    return said


@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_model_would_not_have_said_is_rolled_back(taught, models, seed):
    loaded = taught[seed]
    placed, prompt = by_title(loaded)["Guess, then correct"], loaded.scenario.ops[0].tokens
    drafts, right = guessed(loaded, models[seed], prompt)
    assert placed.outcome.before.drafted["B"] == tuple(token for token, _ in drafts)
    assert placed.graded()[0] == DRAFTS - right > 0
    assert right == random.Random(seed).choice([0, 1, 2])
    after = placed.outcome.after
    assert after.seq_len("B") == len(prompt) + 1 + right
    assert f"“{' '.join(says(models[seed], prompt, DRAFTS + 2))}”" in placed.page.text
    alone = drafter.drafts(loaded.scenario.cache, seed, [*prompt, *says(models[seed], prompt, 1)], DRAFTS, False)
    assert ", ".join(f"“{token}”" for token, _ in alone) in placed.page.text


@pytest.mark.parametrize("seed", [33, 37])
def test_a_seed_with_few_right_guesses_still_has_something_to_roll_back(seed):
    placed = by_title(lesson.load("16_speculative_decoding", seed))["Guess, then correct"]
    assert placed.graded()[0] == DRAFTS


def test_the_parallel_guess_alone_is_right_less_often(taught, models):
    alone = corrected = 0
    for seed, loaded in taught.items():
        for prompt in prompts(loaded).values():
            tokens = [*prompt, *says(models[seed], prompt, 1)]
            said = says(models[seed], tokens, 1)
            alone += drafter.drafts(loaded.scenario.cache, seed, tokens, 1, corrected=False)[0][0] == said[0]
            corrected += drafter.drafts(loaded.scenario.cache, seed, tokens, 1)[0][0] == said[0]
    assert alone < corrected / 2


@pytest.mark.parametrize("seed", SEEDS)
def test_the_next_word_goes_where_the_first_wrong_draft_lay(taught, seed):
    pages = by_title(taught[seed])
    verified = pages["Guess, then correct"].outcome.first("DraftsVerified")
    assert pages["Rolled back"].graded()[0] == verified.slots[0]
    slots = ", ".join(map(str, verified.slots))
    assert f"{'Slot' if len(verified.slots) == 1 else 'Slots'} {slots} hold" in pages["Rolled back"].page.text


@pytest.mark.parametrize("seed", SEEDS)
def test_a_block_of_garbage_stays_and_would_be_freed_by_the_other_policy(taught, seed):
    scenario, pages = taught[seed].scenario, by_title(taught[seed])
    state = pages["Rolled back"].outcome.before
    left = len(state.block_tables["B"]) - -(-state.seq_len("B") // SIZE)
    cache = replace(scenario.cache, policies=(("rollback", "trim_blocks"),))
    assert [op.verbs for op in scenario.ops[:5]] == [("add",), ("generate",), ("add",), ("draft",), ("verify",)]
    trimmed = [e.block for e in happened(cache, seed, scenario.ops[:5]) if isinstance(e, BlockFreed)]
    assert trimmed == [state.block_tables["B"][-1]] * left
    sentence = f"block {state.block_tables['B'][-1]}, in which nothing of B's was left"
    assert (sentence in pages["The blocks stay"].page.text) == (left == 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_block_with_a_draft_has_a_hash_until_the_draft_stays(taught, seed):
    pages = by_title(taught[seed])
    placed = pages["The blocks stay"]
    state = placed.outcome.after
    known = state.seq_len("B") - state.unverified["B"]
    assert state.unverified["B"] == DRAFTS
    assert state.seq_len("B") // SIZE > placed.outcome.before.seq_len("B") // SIZE  # they fill a block on the way
    row = state.block_tables["B"]
    assert [block in state.cached for block in row] == [(j + 1) * SIZE <= known for j in range(len(row))]
    assert placed.graded()[0] == row[known // SIZE - 1]
    assert known // SIZE < state.seq_len("B") // SIZE
    assert f"Block {row[known // SIZE]} is full as well" in placed.graded()[1]
    verified = pages["A guess gets no hash"].outcome.first("DraftsVerified")
    assert (len(verified.accepted), verified.rejected) == (DRAFTS, ())


@pytest.mark.parametrize("seed", SEEDS)
def test_the_cut_and_the_load_limit_leave_d_so_many_drafts(taught, models, seed):
    loaded, pages = taught[seed], by_title(taught[seed])
    placed = pages["How sure"]
    drafts = {name: guessed(loaded, models[seed], prompt) for name, prompt in prompts(loaded).items()}
    for own, _ in drafts.values():
        assert ", ".join(f"“{token}”\u00a0{confidence:.2f}" for token, confidence in own) in placed.page.text
    of_c, of_d = (sure(own) for own, _ in drafts.values())
    assert placed.graded()[0] == of_c + of_d
    verified = {"C": of_c, "D": min(of_d, LOAD - of_c)}
    assert pages["How busy"].graded()[0] == verified["D"]
    assert f"Left by the cut are {of_c} of C, {of_d} of D." in pages["How busy"].page.text
    assert f"computed {2 + sum(verified.values())} tokens" in pages["What was not verified"].page.text
    for name, (own, _) in drafts.items():
        left_out = ", ".join(f"“{token}”" for token, _ in own[verified[name] :])
        assert f"{left_out} of {name}" in pages["What was not verified"].page.text or not left_out
    lost = [max(0, right - verified[name]) for name, (_, right) in drafts.items()]
    assert pages["What was not verified"].graded()[0] == sum(lost)


@pytest.mark.parametrize("seed", SEEDS)
def test_all_ways_say_the_same_words_and_the_stage_does_what_the_last_is_said_to_do(taught, models, seed):
    loaded, last = taught[seed], taught[seed].pages[-1]
    ways = [Speculation(), Speculation(DRAFTS), Speculation(DRAFTS, CUT), Speculation(DRAFTS, CUT, LOAD)]
    greedy = {name: tuple(says(models[seed], prompt, OUTPUTS)) for name, prompt in prompts(loaded).items()}
    lines = [line for line in last.page.text.splitlines() if line.startswith("- ")]
    for speculation, line in zip(ways, lines, strict=True):
        events = served(loaded, speculation)
        assert words(events) == greedy
        rows = timetable(events)
        assert f"**{len(rows)} launches**, {sum(row.num_tokens for row in rows)} tokens" in line
        verified = [event for event in events if isinstance(event, DraftsVerified)]
        accepted, rejected = (sum(len(getattr(e, name)) for e in verified) for name in ("accepted", "rejected"))
        assert (f"{accepted + rejected} draft" in line and f"{accepted} right" in line) or not verified
    own = happened(loaded.scenario.cache, seed, loaded.scenario.ops)
    assert words(own) == greedy
    assert [row.computed for row in timetable(own)] == [row.computed for row in rows]
    assert "**5 launches**" in lines[0]
    tokens = last.outcome.after.tokens
    assert tokens["B"] == tokens["A"][: len(tokens["B"])]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_nearest_two_words_are_as_far_apart_as_is_said_and_far_beyond_rounding(taught, models, seed):
    loaded = taught[seed]
    gaps = []
    for prompt in (loaded.scenario.ops[0].tokens, *prompts(loaded).values()):
        tokens = [*prompt, *says(models[seed], prompt, 2 * DRAFTS + 2)]
        gaps += [sampling.gap(models[seed].logits(tokens[:n])) for n in range(len(prompt), len(tokens))]
    assert min(gaps) > 1e-3
    assert re.findall(r"never nearer than ([\d.]+)\.", loaded.pages[-1].page.text) == [f"{min(gaps):.3f}"]


def test_seeds_ask_different_questions(taught):
    titles = [placed.page.title for placed in taught[0].pages if placed.page.question]
    assert len(titles) == 6
    for title in titles:
        assert len({by_title(loaded)[title].graded()[0] for loaded in taught.values()}) > 1, title
