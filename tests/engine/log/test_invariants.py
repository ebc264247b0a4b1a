"""Each invariant can fail: one number of a sound state is bent by hand, and the invariant is named."""

from dataclasses import replace

import pytest

from pagedviz.engine.log import invariants, replay
from pagedviz.engine.log.events.base import OperationRefused
from pagedviz.engine.log.events.blocks import (
    BlockAllocated,
    BlockHit,
    BlockShared,
    SequenceAdded,
    SequenceForked,
    TokensWritten,
    TokenWritten,
)
from pagedviz.engine.log.events.transfers import BlockSpilled
from pagedviz.engine.log.snapshot import CachedBlock
from tests.engine.engine_cases import Watched

NOTHING = OperationRefused("nothing")


def sound():
    """A has blocks 0 and 1, B shares 0 and has 2; C is on the host, in host block 0. Blocks 3 to 5 are free."""
    cache = Watched(6, block_size=2, host_blocks=2)
    cache.add("A", ["a", "b", "c"])
    cache.fork("A", "B")
    cache.append("B", ["d"])
    cache.add("C", ["e"])
    cache.spill("C")
    return cache.snapshot()


def named(before, event, after):
    return {sentence.split(":")[0] for sentence in invariants.broken(before, event, after)}


def test_sound_state_breaks_nothing():
    state = sound()
    assert state.block_tables == {"A": (0, 1), "B": (0, 2), "C": (None,)}
    assert state.free_blocks == (3, 4, 5)
    assert invariants.broken(state, NOTHING, state) == []


@pytest.mark.parametrize(
    ("bent", "sentence"),
    [
        ({"free_blocks": (4, 5)}, "one_state: device block 3 is in 0 states, not in one"),
        ({"free_blocks": (3, 3, 4, 5)}, "one_state: device block 3 is in 2 states, not in one"),
        ({"free_blocks": (1, 3, 4, 5)}, "one_state: device block 1 is in 2 states, not in one"),
        ({"free_blocks": (3, 4, 5, 6)}, "one_state: device block 6 is outside the pool of 6"),
        ({"null_block": 3}, "one_state: device block 3 is in 2 states, not in one"),
        ({"host_free_blocks": ()}, "one_state: host block 1 is in 0 states, not in one"),
        ({"host_free_blocks": (0, 1)}, "one_state: host block 0 is in 2 states, not in one"),
        (
            {"ref_counts": {0: 1, 1: 1, 2: 1}},
            "ref_count: device block 0 has ref_count 1, and 2 entries or pins name it",
        ),
        ({"ref_counts": {0: 2, 2: 1}}, "ref_count: device block 1 has ref_count 0, and 1 entries or pins name it"),
        ({"pinned": (2,)}, "ref_count: device block 2 has ref_count 1, and 2 entries or pins name it"),
        ({"host_ref_counts": {0: 2}}, "ref_count: host block 0 has ref_count 2, and 1 entries or pins name it"),
        ({"block_tables": {"A": (0, 0), "B": (0, 2), "C": (None,)}}, "once_per_table: A names block 0 2 times"),
        (
            {"host_tables": {"A": (None, None), "B": (None, None), "C": (None,)}},
            "once_per_table: C's logical block 0 is in 0 memories, not in one",
        ),
        (
            {"host_tables": {"A": (None, 1), "B": (None, None), "C": (0,)}},
            "once_per_table: A's logical block 1 is in 2 memories, not in one",
        ),
        (
            {"tokens": {"A": tuple("abcde"), "B": tuple("abcd"), "C": ("e",)}},
            "table_covers: A has 5 tokens and 2 table entries, and needs 3",
        ),
    ],
)
def test_bent_state_is_named(bent, sentence):
    after = replace(sound(), **bent)
    assert sentence in invariants.broken(after, NOTHING, after)


def test_write_into_a_shared_block_is_named():
    state = sound()
    event = TokenWritten("A", position=1, token="x", block=0, offset=1, slot=1, engine_step=1)
    assert "write_alone: A wrote slot 1 of block 0, whose ref_count is 2" in invariants.broken(state, event, state)


@pytest.mark.parametrize(
    ("position", "block", "offset", "slot"),
    [(3, 2, 1, 5), (3, 1, 1, 4), (3, 1, 0, 2), (5, 1, 1, 3)],
    ids=["another block", "slot of another block", "offset of another position", "past the table"],
)
def test_write_to_another_slot_than_the_table_says_is_named(position, block, offset, slot):
    before = sound()
    event = TokenWritten("A", position, "x", block, offset, slot, engine_step=1)
    after = replace(before, tokens={**before.tokens, "A": (*before.tokens["A"], "x")})
    assert f"write_alone: A's position {position} does not map to slot {slot}" in invariants.broken(
        before, event, after
    )


@pytest.mark.parametrize(("block", "offset"), [(1, 0), (2, 1), (0, 3)])
def test_write_into_a_slot_that_is_not_that_offset_of_its_block_is_named(block, offset):
    before = sound()
    event = TokenWritten("A", 3, "x", block, offset, slot=3, engine_step=1)
    after = replace(before, tokens={**before.tokens, "A": (*before.tokens["A"], "x")})
    sentence = f"write_alone: A's slot 3 is not offset {offset} of block {block}"
    assert sentence in invariants.broken(before, event, after)


def grown():
    """`sound`, and A took blocks 3 and 4 for positions 3 to 7."""
    state = sound()
    return replace(
        state,
        block_tables={**state.block_tables, "A": (0, 1, 3, 4)},
        host_tables={**state.host_tables, "A": (None,) * 4},
        ref_counts={**state.ref_counts, 3: 1, 4: 1},
        free_blocks=(5,),
    )


def written(slots, *, position=3, tokens=tuple("vwxyz"), state=None):
    """What is said of A's writing `tokens` into `slots`."""
    before = state or grown()
    event = TokensWritten("A", position, tokens, slots, engine_step=1)
    return invariants.broken(before, event, replay.apply(before, event))


RIGHT = (3, 6, 7, 8, 9)


def test_tokens_written_where_the_table_says_break_nothing():
    assert written(RIGHT) == []


@pytest.mark.parametrize("wrong", [-1, 0, 5, 10, 11, 600])
@pytest.mark.parametrize("k", range(5))
def test_each_wrong_slot_of_tokens_written_at_once_is_named(k, wrong):
    slots = (*RIGHT[:k], wrong, *RIGHT[k + 1 :])
    said = [sentence for sentence in written(slots) if "does not map" in sentence]
    assert said == [f"write_alone: A's position {3 + k} does not map to slot {wrong}"]


def test_all_wrong_slots_of_one_write_are_named():
    said = written((3, 7, 6, 8, 9))
    assert said == [f"write_alone: A's position {p} does not map to slot {slot}" for p, slot in ((4, 7), (5, 6))]


def test_tokens_written_into_a_shared_block_are_each_named():
    state = replace(grown(), ref_counts={**grown().ref_counts, 3: 2})
    said = [sentence for sentence in written(RIGHT, state=state) if sentence.startswith("write_alone")]
    assert said == [f"write_alone: A wrote slot {slot} of block 3, whose ref_count is 2" for slot in (6, 7)]


def test_tokens_and_slots_of_different_number_are_named():
    assert "write_alone: A wrote 5 tokens into 4 slots" in written(RIGHT[:4])
    assert "write_alone: A wrote 4 tokens into 5 slots" in written(RIGHT, tokens=tuple("vwxy"))


@pytest.mark.parametrize("position", [2, 4])
def test_tokens_written_elsewhere_than_behind_the_last_are_named(position):
    sentence = f"write_alone: A wrote position {position}, which is not the one after its last"
    assert sentence in written(RIGHT, position=position)


def test_write_over_an_earlier_token_is_named():
    before = sound()
    event = TokenWritten("A", position=2, token="x", block=1, offset=0, slot=2, engine_step=1)
    after = replace(before, tokens={**before.tokens, "A": (*before.tokens["A"], "x")})
    assert "write_alone: A wrote position 2, which is not the one after its last" in invariants.broken(
        before, event, after
    )


@pytest.mark.parametrize(
    "event",
    [SequenceForked("D", "A", 2), BlockShared("C", "A", 0, 0, "device", ref_count=3, tokens=("a", "b"))],
    ids=lambda event: event.kind,
)
def test_fork_that_takes_a_block_is_named(event):
    before = sound()
    after = replace(before, free_blocks=(4, 5))
    assert f"lazy_fork: {event.kind} changed the free queue" in invariants.broken(before, event, after)


def test_spill_that_loses_a_block_is_named():
    before = sound()
    after = replace(before, ref_counts={0: 2, 1: 1})
    event = BlockSpilled("B", ("B",), block=2, host_block=1, queue_index=0, reason="")
    assert "lazy_fork: BlockSpilled turned 4 blocks in use into 3" in invariants.broken(before, event, after)


def cached():
    """A and B share cached block 0; A's block 1 and free block 3 are cached, too. B's block 2 is partly filled."""
    cache = Watched(6, block_size=2, prefix_caching=True)
    cache.add("A", ["a", "b", "c", "d"], salt="s")
    cache.add("B", ["a", "b", "x"], salt="s")
    cache.add("C", ["y", "z"])
    cache.free("C")
    return cache.snapshot()


def test_sound_state_with_cached_blocks_breaks_nothing():
    state = cached()
    assert state.block_tables == {"A": (0, 1), "B": (0, 2)}
    assert (set(state.cached), state.free_blocks) == ({0, 1, 3}, (4, 5, 3))
    assert invariants.broken(state, NOTHING, state) == []


@pytest.mark.parametrize(
    ("block", "bent", "sentence"),
    [
        (1, {"tokens": ("c", "e")}, "A's logical block 1 is cached block 1, which holds other tokens"),
        (1, {"parent_hash": "other"}, "A's logical block 1 is cached block 1, which belongs behind another prefix"),
        (1, {"parent_hash": None}, "A's logical block 1 is cached block 1, which belongs behind another prefix"),
        (0, {"parent_hash": "any"}, "B's logical block 0 is cached block 0, which belongs behind another prefix"),
        (0, {"salt": None}, "B's first block is cached block 0, which has another salt"),
        (1, {"salt": "s"}, "cached block 1 has a salt, and is not the first of its sequence"),
        (3, {"tokens": ("y",)}, "cached block 3 holds 1 tokens, not 2"),
    ],
)
def test_bent_content_of_a_cached_block_is_named(block, bent, sentence):
    state = cached()
    after = replace(state, cached={**state.cached, block: state.cached[block]._replace(**bent)})
    assert f"cached_content: {sentence}" in invariants.broken(after, NOTHING, after)


def test_hash_of_a_partly_filled_block_and_of_none_of_the_pools_are_named():
    state = cached()
    entry = CachedBlock("hash", state.cached[0].block_hash, ("x", "?"), None)
    after = replace(state, cached={**state.cached, 2: entry, 6: entry})
    said = invariants.broken(after, NOTHING, after)
    assert "cached_content: B's logical block 1 is cached block 2, which no launch has filled" in said
    assert "cached_content: cached block 6 is not in the pool" in said


def test_block_handed_out_with_its_old_hash_is_named():
    state = replace(cached(), free_blocks=(3, 4, 5))
    event = BlockAllocated("A", 2, 3, "")
    sentence = "cached_content: block 3 was handed out again and still has a hash"
    assert sentence in invariants.broken(state, event, replay.apply(state, event))


def test_write_into_a_cached_block_is_named():
    state = replace(cached(), cached={2: CachedBlock("hash", None, ("x", "?"), None)})
    event = TokenWritten("B", position=3, token="?", block=2, offset=1, slot=5, engine_step=1)
    sentence = "write_alone: B wrote slot 5 of block 2, which is cached"
    assert sentence not in invariants.broken(state, event, replay.apply(state, event))  # it is what the hash promised
    for wrong in (replace(event, token="!"), replace(event, position=2, offset=0, slot=4, token="x")):
        said = invariants.broken(state, wrong, replay.apply(state, wrong))
        assert f"write_alone: B wrote slot {wrong.slot} of block 2, which is cached" in said


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"num_tokens": 4}, "E hit 4 of its 4 tokens, and one at least must be computed"),
        ({"logical_block": 0}, "E hit block 1, which is not right behind its last token"),
        ({"block": 4}, "E hit block 4, which has no hash"),
    ],
)
def test_wrong_hit_is_named(change, sentence):
    state = cached()
    rows = {**state.block_tables, "E": (0,)}, {**state.host_tables, "E": (None,)}
    before = replace(state, block_tables=rows[0], host_tables=rows[1], tokens={**state.tokens, "E": ("a", "b")})
    before = replace(before, salts={**state.salts, "E": "s"}, ref_counts={**state.ref_counts, 0: 3})
    hit = BlockHit("E", 1, 1, "hash", ref_count=2, tokens=("c", "d"), num_tokens=5)
    assert invariants.broken(before, hit, replay.apply(before, hit)) == []
    wrong = replace(hit, **change)
    assert f"hit_is_prefix: {sentence}" in invariants.broken(before, wrong, replay.apply(before, wrong))


def test_hit_behind_a_block_without_a_hash_is_named():
    state = cached()
    before = replace(state, cached={1: state.cached[1]})
    hit = BlockHit("B", 1, 1, "hash", ref_count=2, tokens=("c", "d"), num_tokens=5)
    sentence = "hit_is_prefix: B hit block 1 behind a block that was not hit"
    assert sentence in invariants.broken(before, hit, replay.apply(before, hit))


def test_refusal_that_changed_something_is_named():
    before = sound()
    after = replace(before, last_scheduled={**before.last_scheduled, "A": 9})
    event = OperationRefused("append A “x”")
    assert "refused_changes_nothing: the refused append A “x” changed the state" in invariants.broken(
        before, event, after
    )


def test_change_that_the_event_does_not_tell_is_named():
    before = sound()
    event = SequenceAdded("D", 1)
    after = replace(before, last_scheduled={**before.last_scheduled, "A": 9})
    assert named(before, event, after) == {"replay_agrees"}


def test_event_about_what_is_not_there_is_named():
    state = sound()
    event = BlockAllocated("X", logical_block=0, block=3, reason="")
    assert "replay_agrees: BlockAllocated cannot be replayed: it names what is not there" in invariants.broken(
        state, event, state
    )


def test_every_invariant_says_what_it_claims():
    assert len({invariant.__name__ for invariant in invariants.INVARIANTS}) == len(invariants.INVARIANTS) == 16
    assert all(invariant.__doc__ for invariant in invariants.INVARIANTS)
