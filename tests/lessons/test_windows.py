"""What the lesson on windows and groups claims, worked out by hand from its events and tables, for many seeds."""

import functools
import re
from math import ceil

import pytest

from pagedviz import lesson
from pagedviz.engine.log.events.blocks import BlockEvicted, BlockHit, TokenWritten
from pagedviz.engine.log.events.windows import BlockOutOfWindow, PrefixSkipped
from pagedviz.lesson import Run
from pagedviz.run.play import planner

NAME = "15_sliding_window_and_groups"
SEEDS = (None, *range(1, 25))
SIZE, WINDOW = 4, 8
ABOUT = ("prompt", "release", "table", "first", "owned", "B", "evicted", "D")


@functools.cache
def loaded(seed):
    return lesson.load(NAME, seed)


@functools.cache
def of(seed):
    """The questions in order, each by what it is about."""
    asked = [placed for placed in loaded(seed).pages if placed.page.question]
    return dict(zip(ABOUT, asked, strict=True))


def answer(seed, about):
    return of(seed)[about].graded()[0]


def length(seed, about, moment="after"):
    """A's tokens at the end of what a question is graded by."""
    return getattr(of(seed)[about].outcome, moment).seq_len("A")


def null_entries(num_tokens):
    """Of a row that a token was written to behind `num_tokens`: the blocks of which all positions are below the first
    one that it sees."""
    return [j for j in range(ceil((num_tokens + 1) / SIZE)) if all(p <= num_tokens - WINDOW for p in positions(j))]


def positions(logical_block):
    return range(logical_block * SIZE, (logical_block + 1) * SIZE)


def blocks(num_tokens, window):
    """Blocks in use by one layer while a text grows word by word to so many tokens."""
    return ceil(num_tokens / SIZE) - (len(null_entries(num_tokens - 1)) if window else 0)


def hit(state, tokens):
    """By trying every length, as the lesson tells it: the most tokens on which both groups agree, A's prefix given."""
    found = {(entry.group, entry.block_hash) for entry in state.cached.values()}
    chain = [state.cached[block].block_hash for block in state.block_tables["A"][: state.seq_len("A") // SIZE]]
    common = sum(1 for one, other in zip(tokens, state.tokens["A"], strict=False) if one == other)
    lengths = range(min(common, len(tokens) - 1) // SIZE * SIZE, -1, -SIZE)

    def all_there(group, wanted):
        return all((group, chain[p // SIZE]) in found for p in wanted)

    return next(n for n in lengths if all_there(0, range(n)) and all_there(1, range(max(0, n - WINDOW + 1), n)))


def hits(placed, seq_id, group):
    found = [event for event in placed.outcome.events if isinstance(event, BlockHit)]
    return [event.block for event in found if (event.seq_id, event.group) == (seq_id, group)]


def test_seeds_give_other_answers():
    expected = {"prompt": {4, 6}, "release": {1, 2, 3}, "owned": {7, 9}, "B": {16, 20}, "D": {0, 12}}
    for about, answers in expected.items():
        assert {answer(seed, about) for seed in SEEDS} == answers
    for about in ("table", "evicted"):
        assert len({answer(seed, about) for seed in SEEDS}) > 10
    changed = [of(seed)["table"].outcome.first("BlockOutOfWindow") is not None for seed in SEEDS]
    assert 5 < sum(changed) < 20
    places = [of(seed)["table"].page.question.choices.index(answer(seed, "table")) for seed in SEEDS]
    assert set(places) == {0, 1, 2, 3}


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_refused_and_only_the_crowd_and_its_successor_evict(seed):
    for about, placed in of(seed).items():
        kinds = {event.kind for event in placed.outcome.events}
        assert "OperationRefused" not in kinds
        assert "BlockEvicted" not in kinds or about in ("evicted", "D")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_prompt_takes_its_blocks_in_both_groups_from_one_queue(seed):
    outcome = of(seed)["prompt"].outcome
    tables = [outcome.after.tables(group)["A"] for group in (0, 1)]
    assert [*tables[0], *tables[1]] == list(outcome.before.free_blocks[: answer(seed, "prompt")])
    assert answer(seed, "prompt") == 2 * ceil(length(seed, "prompt") / SIZE)


@pytest.mark.parametrize("seed", SEEDS)
def test_after_every_word_just_what_is_wholly_below_the_window_is_null_and_in_group_1_only(seed):
    played, written = loaded(seed).scenario, 0
    player = planner(played.cache, played.seed)
    for op in played.ops:
        for happening in player.perform(op):
            event, state = happening.event, happening.snapshot
            if isinstance(event, TokenWritten) and event.seq_id == "A":
                written += 1
                row = state.tables(1)["A"]
                assert [j for j, block in enumerate(row) if block == 0] == null_entries(event.position)
                assert 0 not in state.block_tables["A"]
    assert written > 8
    assert state.null_block == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_words_before_the_first_release_reach_up_to_the_last_position_that_sees_block_0(seed):
    outcome = of(seed)["release"].outcome
    assert answer(seed, "release") == 11 - outcome.before.seq_len("A")
    release = outcome.first("BlockOutOfWindow")
    assert (release.logical_block, release.group, release.cached) == (0, 1, True)
    assert release.block == outcome.before.tables(1)["A"][0]
    assert outcome.after.free_blocks[-1] == release.block
    assert f"let go of block {release.block}." in of(seed)["release"].graded()[1]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_table_after_the_next_token_is_one_of_four_and_the_others_are_wrong(seed):
    placed = of(seed)["table"]
    row, after = (list(state.tables(1)["A"]) for state in (placed.outcome.before, placed.outcome.after))
    assert length(seed, "table") == length(seed, "table", "before") + 1
    expected = [0 if j in null_entries(length(seed, "table", "before")) else block for j, block in enumerate(row)]
    assert after == expected
    assert answer(seed, "table") == str(expected)
    others = set(placed.page.question.choices) - {str(expected)}
    assert str(row[1:]) in others  # entries do not move up
    assert len(others) == 3
    assert ("the whole block stays" in placed.graded()[1]) == (after == row)


@pytest.mark.parametrize("seed", SEEDS)
def test_blocks_in_use_are_all_of_one_group_and_those_of_the_other_within_the_window(seed):
    grown = length(seed, "owned")
    assert answer(seed, "owned") == blocks(grown, None) + blocks(grown, WINDOW)
    assert list(of(seed)["owned"].outcome.after.tokens) == ["A"]
    before = len(of(seed)["owned"].outcome.before.ref_counts)
    assert ("fewer than before" in of(seed)["owned"].graded()[1]) == (answer(seed, "owned") < before)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_table_of_three_caches_and_the_most_of_each_rule_are_what_counting_gives(seed):
    pages = loaded(seed).pages
    text = pages[5].page.text
    rows = [tuple(map(int, re.findall(r"\d+", line))) for line in text.splitlines() if line.startswith("| ")][1:]
    rows = [row for row in rows if row]
    lengths = (length(seed, "owned"), 40, 80)
    half = [blocks(n, None) + blocks(n, WINDOW) for n in lengths]
    assert rows == [(n, 2 * blocks(n, None), h, 2 * blocks(n, WINDOW)) for n, h in zip(lengths, half, strict=True)]
    most = max(blocks(n, WINDOW) for n in range(length(seed, "owned"), 81))
    assert f"word by word, {most} at most in a layer" in text
    # V0 keeps window // block_size + 2 full blocks: of n tokens in the cache when the next is written.
    kept = max(ceil(n / SIZE) - max(0, (n - 1) // SIZE - (WINDOW // SIZE + 2)) for n in range(12, 81))
    closing = pages[-1].page.text
    assert (
        f"= 4 full blocks and the growing one. That is up to {kept} for A's text, where V1 has up to {most}" in closing
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_a_long_prompt_hits_though_group_1_has_let_go_of_its_beginning(seed):
    placed = of(seed)["B"]
    before, after = placed.outcome.before, placed.outcome.after
    assert answer(seed, "B") == hit(before, after.tokens["B"]) > WINDOW
    full, windowed = after.tables(0)["B"], after.tables(1)["B"]
    agreed = answer(seed, "B") // SIZE
    assert hits(placed, "B", 0) == list(full[:agreed]) == list(after.block_tables["A"][:agreed])
    assert hits(placed, "B", 1) == list(windowed[agreed - 2 : agreed])
    assert windowed[: agreed - 2] == (0,) * (agreed - 2)
    skipped = placed.outcome.first("PrefixSkipped")
    assert isinstance(skipped, PrefixSkipped)
    assert (skipped.group, skipped.num_blocks) == (1, agreed - 2)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_hash_names_a_block_in_either_group(seed):
    placed = of(seed)["evicted"]
    text, state = placed.page.text, placed.outcome.before
    one, other = (int(block) for block in re.search(r"Blocks (\d+) and (\d+) have the same hash", text).groups())
    assert (state.cached[one].group, state.cached[other].group) == (0, 1)
    assert state.cached[one].block_hash == state.cached[other].block_hash
    assert state.cached[one].tokens == state.cached[other].tokens
    assert f"`{state.cached[one].block_hash[:4]}`" in text


@pytest.mark.parametrize("seed", SEEDS)
def test_the_crowd_takes_one_cached_block_and_it_is_group_1s_first(seed):
    placed = of(seed)["evicted"]
    (evicted,) = [event for event in placed.outcome.events if isinstance(event, BlockEvicted)]
    first = next(e for e in of(seed)["release"].outcome.events if isinstance(e, BlockOutOfWindow))
    assert answer(seed, "evicted") == evicted.block == first.block
    queue = re.search(r"free queue is then (.*?);", placed.page.text).group(1)
    taken = [event.block for event in placed.outcome.events if event.kind == "BlockAllocated"]
    assert [int(block.strip("*")) for block in queue.split(", ")][: len(taken)] == taken
    assert f"takes {len(taken)} blocks" in placed.page.question.text
    assert queue.split(", ")[len(taken) - 1] == f"**{evicted.block}**"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_prompt_hits_what_is_left_on_which_both_groups_agree(seed):
    placed = of(seed)["D"]
    before, tokens = placed.outcome.before, placed.outcome.after.tokens["D"]
    assert answer(seed, "D") == hit(before, tokens)
    in_group_0 = (len(tokens) - 1) // SIZE * SIZE
    could = hit(of(seed)["evicted"].outcome.before, tokens)
    assert f"Before C came, {could} of its tokens" in placed.page.question.text
    assert could == in_group_0
    assert (answer(seed, "D") < could) == (could <= WINDOW)  # a longer one does not see what was lost
    closing = loaded(seed).pages[-1].page.text
    text = before.tokens["A"]
    assert f"hit {hit(before, text[:6])} tokens, and its first 14 words {hit(before, text[:14])}." in closing
    assert (hit(before, text[:6]), hit(before, text[:14])) == (0, 12)


def test_a_run_beside_the_lessons_own_is_the_same_so_far_and_leaves_it_alone():
    run = Run(loaded(None).scenario.cache, 3)
    run.add("A", "call me Ishmael")
    beside = run.again()
    assert beside.state == run.state
    beside.free("A")
    assert list(run.state.tokens) == ["A"]
    assert len(run.ops) == 1
    assert len(run.again(groups=()).state.group_tables) == 0
