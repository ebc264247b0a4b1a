"""Drafts on the real kernels: what is verified is what the model says, and what was rolled back is read by nobody."""

from dataclasses import replace

import pytest

from pagedviz.engine.blocks.changes import drafts
from pagedviz.engine.policies.limits import Speculation
from pagedviz.model.vocabulary import VOCABULARY
from pagedviz.run.play import Player, planner
from pagedviz.runtime.cache.kv_cache import KVCache
from pagedviz.runtime.checking.kv_log import KVLog
from pagedviz.scenario.operations import Add, Append, Draft, EngineSteps, Free, Generate, Submit, Verify
from tests.model.model_cases import dense
from tests.runtime.runner.runner_cases import TINY, Played

NAN = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # NaN is the point here
pytestmark = [pytest.mark.slow, NAN]

CACHE = replace(TINY, num_blocks=24)
GROUPS = replace(CACHE, num_blocks=32, profile="vllm-v1", prefix_caching=True, groups=(None, 4))
ABC = ("a", "b", "c")
WRONG = ("x", 7, "y")  # no words of the model's


def greedy(cache, tokens, count, seed=0):
    """What a model without a cache says behind `tokens`."""
    tokens = list(tokens)
    for _ in range(count):
        tokens.append(VOCABULARY[int(dense(cache, seed, tokens)[2][-1].argmax())])
    return tuple(tokens)


def verified(played):
    return [happening.event for happening, _ in played.steps if happening.event.kind == "DraftsVerified"]


@pytest.mark.parametrize("cache", [CACHE, GROUPS], ids=["one group", "full and 4"])
def test_right_drafts_stay_and_wrong_ones_are_rolled_back_and_overwritten(cache):
    said = greedy(cache, ABC, 6)
    half_right = (said[4], *WRONG[:2])
    ops = (Add("A", ABC), Draft("A", 3, half_right), Verify("A"), Draft("A", 2, said[6:8]), Verify("A"))
    played = Played(*ops, Generate("A", 1), cache=cache)
    assert played.first_failure is None
    assert [(event.accepted, event.rejected) for event in verified(played)] == [(said[4:5], WRONG[:2]), (said[6:8], ())]
    assert played.state.tokens["A"] == said
    rolled_back = verified(played)[0]
    assert len(rolled_back.slots) == 2 * len(cache.windows)
    played.play(Free("A"))  # its last block is filled in part, in every group
    assert len(said) % cache.block_size
    assert played.first_failure is None


def test_rolled_back_slots_hold_nan_in_every_layer_until_they_are_written_again():
    played = Played(Add("A", ABC), Draft("A", 3, WRONG), Verify("A"), cache=CACHE)
    slots = verified(played)[0].slots
    k = played.runner.kv.k.flatten(1, 2)
    assert k[:, list(slots)].isnan().all()
    assert len(played.runner.log.sequences["A"].x) == 4
    played.play(Append("A", ("z",)))
    assert played.runner.kv.k.flatten(1, 2)[:, slots[0]].isfinite().all()
    assert played.first_failure is None


SERVED = (Submit("A", ABC, 6), Submit("B", ("x", 7), 5), EngineSteps(9))
AHEAD = replace(CACHE, speculation=Speculation(3))


def assert_greedy(state, seed):
    said = {name: request.output for name, request in state.requests.items()}
    assert said == {"A": greedy(CACHE, ABC, 6, seed)[3:], "B": greedy(CACHE, ("x", 7), 5, seed)[2:]}


@pytest.mark.parametrize("cache", [CACHE, AHEAD], ids=["one by one", "drafted"])
def test_speculation_changes_no_word_on_the_kernels(cache):
    played = Played(*SERVED, cache=cache)
    assert played.first_failure is None
    assert_greedy(played.state, 0)
    assert bool(verified(played)) == (cache is AHEAD)


@pytest.mark.parametrize("seed", range(1, 6))
def test_speculation_changes_no_word_of_the_plan(seed):
    plan = planner(AHEAD, seed)
    happenings = [happening for op in SERVED for happening in plan.perform(op)]
    assert_greedy(happenings[-1].snapshot, seed)
    assert any(happening.event.kind == "DraftsVerified" for happening in happenings)


# --- broken on purpose ---

BROKEN = (Add("A", ABC), Draft("A", 3, WRONG), Verify("A"), Append("A", ("z",)))


def first_failure():
    return Played(*BROKEN, cache=CACHE).first_failure


def test_slots_that_are_not_rolled_back_are_named(monkeypatch):
    apply = KVCache.apply
    monkeypatch.setattr(
        KVCache, "apply", lambda self, e, *more: None if e.kind == "DraftsVerified" else apply(self, e, *more)
    )
    kind, check = first_failure()
    assert kind == "DraftsVerified"
    assert all(sentence.startswith("poison: device block") for sentence in check.broken)


def test_one_slot_more_rolled_back_is_found(monkeypatch):
    apply = KVCache.apply

    def more(self, event, *cached):
        if event.kind == "DraftsVerified":
            event = replace(event, slots=(*event.slots, event.slots[0] - 1))
        apply(self, event, *cached)

    monkeypatch.setattr(KVCache, "apply", more)
    kind, check = Played(Add("A", ABC[:2]), *BROKEN[1:], cache=CACHE).first_failure
    assert (kind, check.max_error, check.failed) == ("DraftsVerified", None, ("A",))


def test_rolled_back_slot_that_is_read_is_found(monkeypatch):
    """The engine counts one rejected draft as kept: its slot is poisoned, and the next launch reads it."""
    real = drafts.verify

    def keep_one(state, seq, num_accepted):
        kept = seq.tokens[seq.seq_len - seq.unverified]
        real(state, seq, num_accepted)
        seq.tokens.append(kept)

    monkeypatch.setattr(drafts, "verify", keep_one)
    kind, check = first_failure()
    assert (kind, check.max_error, check.failed) == ("TokenWritten", None, ("A",))


def test_log_that_keeps_rejected_rows_is_found(monkeypatch):
    apply = KVLog.apply
    monkeypatch.setattr(KVLog, "apply", lambda self, e: None if e.kind == "DraftsVerified" else apply(self, e))
    kind, check = first_failure()
    assert (kind, check.failed) == ("DraftsVerified", ("A",))


def test_draft_that_is_accepted_although_the_model_says_another_word_is_another_word(monkeypatch):
    """What is kept and what is said are compared in the test, as no kernel can know it."""
    monkeypatch.setattr(Player, "_outputs", lambda self, seq_id: (*self.manager.sequences[seq_id].tokens[-3:], "the"))
    played = Played(*BROKEN[:3], cache=CACHE)
    assert verified(played)[0].accepted == WRONG
    assert played.state.tokens["A"][4:] != greedy(CACHE, ABC, 4)[4:]
