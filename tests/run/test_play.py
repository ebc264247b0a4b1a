"""Playing a scenario: what is yielded, where it came from, and what a refusal may not do."""

from dataclasses import replace

import numpy as np
import pytest

from pagedviz.engine.blocks.changes import allocation
from pagedviz.engine.log import errors
from pagedviz.engine.manager import block_manager
from pagedviz.model.sampling import TooClose
from pagedviz.model.vocabulary import VOCABULARY
from pagedviz.run.play import Player, planner
from pagedviz.run.source import PROJECT
from pagedviz.scenario import scenario
from pagedviz.scenario.choices import free_queue_of
from pagedviz.scenario.operations import Add, Append, Draft, EngineSteps, Fork, Free, Generate, Submit
from pagedviz.scenario.settings import CacheConfig
from tests.model.model_cases import scores_of


def play(cache, *ops, seed=0):
    player = planner(cache, seed)
    return [happening for op in ops for happening in player.perform(op)]


def test_happenings_name_their_operation():
    happenings = play(CacheConfig(), Add("A", ("a",)), Free("A"))
    assert [(h.op_index, h.op, h.event.kind) for h in happenings] == [
        (0, "add A “a”", "SequenceAdded"),
        (0, "add A “a”", "BlockAllocated"),
        (0, "add A “a”", "TokenWritten"),
        (1, "free A", "BlockFreed"),
        (1, "free A", "SequenceFreed"),
    ]


def test_source_line_is_the_one_that_reported_the_event():
    for happening in play(CacheConfig(), Add("A", ("a", "b")), Fork("A", "B"), Append("B", ("c",)), Free("A")):
        source = happening.source
        assert source.file.startswith(("pagedviz/engine/manager/", "pagedviz/engine/blocks/changes/"))
        line = (PROJECT / source.file).read_text().splitlines()[source.line - 1]
        assert "report(" in line


def test_source_line_of_a_refusal_is_the_one_that_raised_it():
    (happening,) = play(CacheConfig(), Free("X"))
    lines = (PROJECT / happening.source.file).read_text().splitlines()
    assert "raise errors.UnknownSequence(" in lines[happening.source.line - 1]


def test_refused_operation_is_one_happening_and_the_next_one_goes_on():
    happenings = play(CacheConfig(num_blocks=1), Add("A", ("a",) * 5), Add("A", ("a",)))
    assert [h.event.kind for h in happenings] == ["OperationRefused", "SequenceAdded", "BlockAllocated", "TokenWritten"]
    refused = happenings[0].refused
    assert "A needs 2 blocks by itself, and the whole device pool has 1" in refused.pop("sentence")
    assert refused == {"error": "NeverFits", "seq_id": "A", "needed": 2, "total": 1}
    assert happenings[0].broken == ()


def test_refusal_that_came_halfway_is_found_out(monkeypatch):
    """Broken on purpose: `add` takes its blocks one by one and notices too late."""

    def add(self, seq_id, tokens, salt):
        seq = self.sequences[seq_id] = block_manager.Sequence(seq_id)
        self._report(block_manager.SequenceAdded(seq_id, len(tokens)))
        allocation.allocate(self.state, seq, "hope")
        raise errors.NoFreeBlocks(seq_id=seq_id, needed=2, free=0, total=1)

    monkeypatch.setattr(block_manager.BlockManager, "add", add)
    happenings = play(CacheConfig(num_blocks=1), Add("A", ("a",)))
    assert "refused_changes_nothing: the refused add A “a” changed the state" in happenings[-1].broken


def test_generate_asks_for_a_token_only_after_the_one_before_was_taken():
    seen = []
    player = Player(CacheConfig(), 0, lambda seq_id, position: scores_of(VOCABULARY[len(seen)]))
    for op in (Add("A", ("a",)), Generate("A", 2)):
        for happening in player.perform(op):
            seen.append(happening.event.kind)
    assert player.manager.sequences["A"].tokens == ["a", VOCABULARY[3], VOCABULARY[4]]


def test_generate_is_all_or_nothing():
    happenings = play(CacheConfig(num_blocks=1), Add("A", ("a",)), Generate("A", 4))
    assert [h.event.kind for h in happenings] == ["SequenceAdded", "BlockAllocated", "TokenWritten", "OperationRefused"]
    assert happenings[-1].refused["error"] == "NeverFits"
    assert happenings[-1].snapshot.tokens == {"A": ("a",)}


def test_scatter_shuffles_the_free_queue_once_by_the_seed():
    cache = CacheConfig(num_blocks=12, scatter=True)
    assert free_queue_of(cache, 0) == [1, 9, 8, 5, 10, 2, 3, 7, 4, 0, 11, 6]
    assert free_queue_of(cache, 0) == free_queue_of(cache, 0) != free_queue_of(cache, 1)
    assert sorted(free_queue_of(cache, 1)) == list(range(12))
    assert free_queue_of(replace(cache, scatter=False), 1) == list(range(12))


@pytest.mark.parametrize("scatter", [False, True])
def test_scatter_leaves_the_null_block_out(scatter):
    assert sorted(free_queue_of(CacheConfig(num_blocks=5, profile="vllm-v1", scatter=scatter), 0)) == [1, 2, 3, 4]


def test_steps_stamp_sequences_with_their_operation():
    happenings = play(CacheConfig(), Add("A", ("a",)), Add("B", ("b",)), Append("A", ("c",)))
    assert happenings[-1].snapshot.last_scheduled == {"A": 3, "B": 2}


@pytest.mark.parametrize("name", ["mapping", "self", "s", "changes", "__proto__", "kind", "🙂", "عربى"])
def test_any_name_that_a_scenario_takes_can_be_played(name):
    ops = [{"add": name, "text": "a b c d e"}, {"fork": name, "as": "child"}, {"append": name, "text": "f"}]
    ops += [{"spill": name}, {"reload": name}, {"free": name}]
    parsed = scenario.from_json({"pagedviz": 1, "ops": ops})
    happenings = play(parsed.cache, *parsed.ops)
    assert [h.broken for h in happenings if h.broken or h.refused] == []


def test_a_guess_that_is_not_sure_enough_makes_no_room_for_itself():
    player = planner(CacheConfig(num_blocks=4, block_size=2, auto_spill=True), 0)
    for seq_id in "BA":
        list(player.perform(Add(seq_id, tuple("abcd"))))
    (refused,) = player.perform(Draft("A", 2, min_confidence=1.0))
    assert refused.refused is not None
    assert refused.refused["error"] == "NotConfident"
    assert refused.broken == ()


@pytest.mark.parametrize("margin", [0.0, 1e-4])
def test_beams_that_rounding_could_order_otherwise_are_left_to_the_kernels(margin):
    """Scores that look at nothing: the best word then the second is as likely as the second then the best."""
    scores = np.linspace(3.0, 0.0, len(VOCABULARY))
    player = Player(CacheConfig(), 0, lambda seq_id, position: scores, margin)
    list(player.perform(Submit("A", ("a",), 3, beams=2)))
    list(player.perform(EngineSteps(1)))
    if margin:
        with pytest.raises(TooClose):
            list(player.perform(EngineSteps(1)))
        assert len(player.scheduler.requests["A"].output) == 1
    else:
        list(player.perform(EngineSteps(1)))
        assert len(player.scheduler.requests["A"].output) == 2
