"""Hits in the runner: only new tokens are computed, all of it is checked, and wrong hits turn the check red."""

from dataclasses import replace

import pytest
import torch

import kernels
from pagedviz.engine.blocks import hashing
from pagedviz.engine.blocks.prefix_cache import PrefixCache
from pagedviz.engine.log import invariants
from pagedviz.runtime.cache.kv_cache import KVCache
from pagedviz.scenario.operations import Add, Append, Fork, Free, Generate, Reload, Spill
from tests.runtime.runner.runner_cases import TINY, Played, same_bits

pytestmark = pytest.mark.slow

CACHING = replace(TINY, prefix_caching=True)
ABCDE = tuple("abcde")
COME_AND_GO = (Add("A", ABCDE), Free("A"), Add("B", (*ABCDE, "f")))


ON_A_GPU = [pytest.param(profile, marks=pytest.mark.gpu) for profile in ("vllm-v0", "nano-vllm")]


@pytest.mark.parametrize("profile", ["vllm-v1", *ON_A_GPU])
def test_every_step_is_good(profile):
    ops = (
        *COME_AND_GO,
        Add("C", ABCDE),
        Append("C", ("f", "h")),
        Generate("B", 3),
        Spill("C"),
        Reload("C"),
        Free("B"),
        Add("D", tuple("abcdefg"), salt="s"),
        Add("E", tuple("abcdz")),
        Free("C"),
        Free("D"),
        Free("E"),
        Add("F", tuple("uvwxyzuvwxyzuvwxyzuv")),
    )
    played = Played(*ops, cache=replace(CACHING, num_blocks=12, profile=profile))
    assert played.first_failure is None
    assert played.runner.log.cached.keys() == played.state.cached.keys()
    kinds = {happening.event.kind for happening, _ in played.steps}
    assert {"BlockHit", "BlockCached", "BlockEvicted"} <= kinds
    assert ("BlockCollapsed" in kinds) == (profile == "vllm-v0")
    assert "OperationRefused" not in kinds


def test_only_the_tokens_that_were_not_hit_are_stored(monkeypatch):
    stored = []
    store = kernels.store_kv
    monkeypatch.setattr(kernels, "store_kv", lambda k, *more: (stored.append(len(k)), store(k, *more)))
    Played(*COME_AND_GO, cache=CACHING)
    assert stored == [5, 5, 2, 2]


def test_hit_gives_the_bits_that_its_first_owner_computed_and_the_same_next_token():
    first = Played(Add("A", ABCDE), cache=CACHING)
    k, v = first.kv("A")
    first.play(Free("A"), Add("B", (*ABCDE, "f")))
    assert same_bits((k[:, :4], v[:, :4]), [rows[:, :4] for rows in first.kv("B")])
    alone = Played(Add("B", (*ABCDE, "f")))
    for mine, other in zip(first.logged("B"), alone.logged("B"), strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-5)
    said = {run.runner.player._decoder.greedy("B", 5) for run in (first, alone)}
    assert len(said) == 1


def test_cached_free_block_keeps_its_numbers_until_it_goes_out():
    played = Played(Add("A", ABCDE), Free("A"), cache=CACHING)
    cached = played.state.cached
    assert len(cached) == 2
    assert not played.runner.kv.k[:, list(cached)].isnan().any()
    played.play(Add("B", tuple("uvwxyzuvwxyzuv")))
    assert played.first_failure is None
    assert len(cached.items() & played.state.cached.items()) == 1


def test_forked_child_finds_what_it_wrote_behind_its_parents_blocks():
    played = Played(Add("A", ABCDE), Fork("A", "B"), Append("B", ("x",)), Free("A"), Free("B"), cache=CACHING)
    played.play(Add("C", (*ABCDE, "x", "y")))
    assert [h.event.kind for h, _ in played.steps].count("BlockHit") == 3
    assert played.first_failure is None


def test_collapsed_sequence_is_logged_with_the_rows_of_the_block_that_it_names():
    played = Played(Add("A", ABCDE), Add("B", ("a", "b")), Append("B", ("c", "d", "e")), cache=CACHING)
    assert [h.event.kind for h, _ in played.steps].count("BlockCollapsed") == 2
    assert played.first_failure is None
    mine, theirs = (played.runner.log.sequences[seq_id].rows() for seq_id in "BA")
    for row, other in zip(mine, theirs, strict=True):
        assert [a is b for a, b in zip(row, other, strict=True)] == [True] * 4 + [False]


def test_earlier_state_of_a_run_with_hits_can_be_had_again():
    played = Played(*COME_AND_GO, Free("B"), cache=CACHING)
    for index, (happening, _) in enumerate(played.steps, 1):
        moment = played.runner.recording.at(index)
        for seq_id, tokens in happening.snapshot.tokens.items():
            kv = moment.kv.read(moment.snapshot, seq_id) if tokens else ()
            logged = [moment.log[seq_id].stacked_kv(layer, len(tokens)) for layer in range(2)] if tokens else ()
            assert same_bits(kv, [torch.stack(rows) for rows in zip(*logged, strict=True)])


# --- broken by hand ---


def without_parent(monkeypatch):
    """Break the hash: [B, C] has the hash of the second block of [A, B, C] when blocks hold one token."""
    real = hashing.block_hash
    monkeypatch.setattr(hashing, "block_hash", lambda parent, tokens, salt: real(b"", tokens, salt))


WRONG_PREFIX = (Add("A", tuple("ABCD")), Add("B", tuple("BCD")))


def test_broken_hash_alone_hits_nothing_for_the_tokens_are_looked_at(monkeypatch):
    without_parent(monkeypatch)
    played = Played(*WRONG_PREFIX, cache=replace(CACHING, block_size=1))
    assert played.first_failure is None
    assert "BlockHit" not in {h.event.kind for h, _ in played.steps}


def test_hit_behind_another_prefix_turns_the_check_red(monkeypatch):
    without_parent(monkeypatch)
    monkeypatch.setattr(hashing, "same_content", lambda one, other: True)
    kind, check = Played(*WRONG_PREFIX, cache=replace(CACHING, block_size=1)).first_failure
    assert kind == "BlockHit"
    assert check.failed == ("B",)
    assert check.max_error > 0.01
    assert any(sentence.startswith("cached_content: B's logical block 0") for sentence in check.broken)


def test_hit_behind_another_prefix_is_found_by_the_numbers_alone(monkeypatch):
    without_parent(monkeypatch)
    monkeypatch.setattr(hashing, "same_content", lambda one, other: True)
    monkeypatch.setattr(invariants, "INVARIANTS", ())
    kind, check = Played(*WRONG_PREFIX, cache=replace(CACHING, block_size=1)).first_failure
    assert (kind, check.failed, check.broken) == ("BlockHit", ("B",), ())


def test_hash_left_behind_when_a_block_goes_out_is_found(monkeypatch):
    monkeypatch.setattr("pagedviz.engine.blocks.changes.caching.evict", lambda state, block, reason: None)
    kind, check = Played(Add("A", ABCDE), Free("A"), Add("B", tuple("u" * 15)), cache=CACHING).first_failure
    assert kind == "BlockAllocated"
    assert any("was handed out again and still has a hash" in sentence for sentence in check.broken)


def test_hash_that_stays_in_the_map_is_found(monkeypatch):
    monkeypatch.setattr(PrefixCache, "drop", lambda self, block: self.links[block])
    kind, check = Played(Add("A", ABCDE), Free("A"), Add("B", tuple("u" * 15)), cache=CACHING).first_failure
    assert kind == "BlockEvicted"
    assert any(sentence.startswith("replay_agrees") for sentence in check.broken)


def test_cached_block_that_is_poisoned_too_early_is_found(monkeypatch):
    apply = KVCache.apply

    def poison(self, event, cached):
        apply(self, event, cached)
        if event.kind == "BlockFreed" and event.cached:
            self._poison(event.block)

    monkeypatch.setattr(KVCache, "apply", poison)
    kind, check = Played(*COME_AND_GO, cache=CACHING).first_failure
    assert (kind, check.failed) == ("BlockHit", ("B",))


def test_evicted_block_that_keeps_its_numbers_is_named(monkeypatch):
    apply = KVCache.apply
    monkeypatch.setattr(
        KVCache, "apply", lambda self, e, *more: None if e.kind == "BlockEvicted" else apply(self, e, *more)
    )
    kind, check = Played(Add("A", ABCDE), Free("A"), Add("B", tuple("u" * 15)), cache=CACHING).first_failure
    assert kind == "BlockEvicted"
    assert any(sentence.startswith("poison: device block") for sentence in check.broken)
