"""What the lesson on prefix caching claims, worked out by hand from the prompts of its run, for several seeds."""

from itertools import takewhile

import pytest

from pagedviz import lesson
from pagedviz.engine.log.events.blocks import BlockEvicted, BlockHit
from pagedviz.scenario.operations import Add

SEEDS = (None, 1, 2, 5)  # B hits 4 or 8 tokens, E is 8 or 12 long, G has F's salt or another, A loses one block or two
SIZE = 4


def of(seed):
    """The questions in order, each by what it is about."""
    about = ("B", "C", "D", "E", "G", "last", "evicted", "again")
    asked = [placed for placed in lesson.load("08_prefix_caching", seed).pages if placed.page.question]
    return dict(zip(about, asked, strict=True))


def prompts(seed):
    """Each sequence's first prompt and salt."""
    adds = [op for op in lesson.load("08_prefix_caching", seed).scenario.ops if isinstance(op, Add)]
    return {op.seq_id: (op.tokens, op.salt) for op in reversed(adds)}


def hits(placed, seq_id):
    return [event for event in placed.outcome.events if isinstance(event, BlockHit) and event.seq_id == seq_id]


def test_seeds_give_other_answers():
    for name, answers in {"B": {4, 8}, "E": {4, 8}, "G": {0, 4}, "again": {4, 8}}.items():
        assert {of(seed)[name].graded()[0] for seed in SEEDS} == answers


@pytest.mark.parametrize("seed", SEEDS)
def test_whole_blocks_of_the_common_prefix_are_hit_and_never_the_last_token(seed):
    asked, given = of(seed), prompts(seed)
    a = given["A"][0]
    for name in ("B", "E"):
        tokens = given[name][0]
        common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(tokens, a, strict=False)))
        expected = min(common, len(tokens) - 1) // SIZE * SIZE
        assert asked[name].graded()[0] == expected
        assert [event.logical_block for event in hits(asked[name], name)] == list(range(expected // SIZE))
    e = given["E"][0]
    assert e == a[: len(e)]
    assert len(e) % SIZE == 0
    after = asked["E"].outcome.after
    twice = [after.cached[after.block_tables[seq_id][len(e) // SIZE - 1]] for seq_id in "AE"]
    assert twice[0] == twice[1]
    assert after.block_tables["A"][len(e) // SIZE - 1] != after.block_tables["E"][-1]


@pytest.mark.parametrize("seed", SEEDS)
def test_tokens_behind_another_prefix_or_none_hit_nothing(seed):
    asked, given = of(seed), prompts(seed)
    a, c, d = (given[name][0] for name in "ACD")
    assert c[: 2 * SIZE] == a[SIZE : 3 * SIZE]
    assert (d[SIZE : 2 * SIZE], d[:SIZE] == a[:SIZE]) == (a[SIZE : 2 * SIZE], False)
    assert asked["C"].graded()[0] == 0
    assert hits(asked["D"], "D") == []
    state = asked["D"].outcome.after
    of_block = {name: state.cached[state.block_tables[name][j]] for name, j in (("A", 1), ("C", 0), ("D", 1))}
    assert len({entry.tokens for entry in of_block.values()}) == 1
    assert len({entry.block_hash for entry in of_block.values()}) == 3
    explained = asked["C"].graded()[1]
    assert all(f"`{of_block[name].block_hash[:4]}`" in explained for name in "AC")


@pytest.mark.parametrize("seed", SEEDS)
def test_only_the_same_salt_hits(seed):
    asked, given = of(seed), prompts(seed)
    assert given["F"][0] == given["G"][0] == given["A"][0][: SIZE + 1]
    assert given["F"][1] is not None
    assert hits(asked["G"], "F") == []
    assert asked["G"].graded()[0] == (SIZE if given["G"][1] == given["F"][1] else 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_tail_of_the_chain_is_evicted_first_and_its_beginning_is_still_hit(seed):
    asked = of(seed)
    table = asked["last"].outcome.before.block_tables["A"]
    queue = asked["last"].outcome.after.free_blocks
    assert queue[0] == table[3]
    assert queue[-3:] == (table[2], table[1], table[0])
    assert asked["last"].graded()[0] == table[0]
    evicted = [event.block for event in asked["evicted"].outcome.events if isinstance(event, BlockEvicted)]
    cached = [block for block in queue if block in asked["last"].outcome.after.cached]
    assert evicted == cached[: len(evicted)]
    assert asked["evicted"].graded()[0] == cached[0]
    left = [block for block in table[:3] if block not in evicted]
    assert 1 <= len(left) <= 2
    assert [event.block for event in hits(asked["again"], "A")] == left
    assert asked["again"].graded()[0] == SIZE * len(left)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_evicted_before_the_lesson_speaks_of_it_and_nothing_is_refused(seed):
    asked = of(seed)
    for name, placed in asked.items():
        kinds = {event.kind for event in placed.outcome.events}
        assert "OperationRefused" not in kinds
        assert ("BlockEvicted" in kinds) == (name in ("evicted", "again"))
