"""The host tier on the real tensors: what comes back is, byte for byte, what went there."""

from dataclasses import replace

import pytest

from pagedviz.engine.log.events.transfers import TierLoadBegun, TierStoreBegun
from pagedviz.runtime.cache.kv_cache import KVCache
from pagedviz.runtime.cache.transfers import Transfers
from pagedviz.scenario.operations import Add, EndTransfer, EngineSteps, Free, Load, Store, Submit
from tests.runtime.runner.runner_cases import TINY, Played, same_bits

pytestmark = pytest.mark.slow

WORDS = tuple("abcdefg")
OTHERS = tuple("zyxwvutsrqponm")  # all that the pool has
CACHE = replace(
    TINY,
    num_blocks=8,
    host_blocks=2,
    host_chunks=5,
    prefix_caching=True,
    profile="vllm-v1",
    policies=(("host_write", "when_asked"),),
)
# A's blocks go to the host, are evicted from the device, and come back to other blocks.
AWAY = (Add("A", WORDS), Store("A"), EndTransfer(1, "finish"), Free("A"), Add("B", OTHERS), Free("B"))
BACK = (Load(WORDS), EndTransfer(2, "finish"))
# Of 5 chunks 3 are A's, so 2 of those go to the 4 blocks of another.
MORE = (Add("C", tuple("12345678")), Store("C"))


def test_store_evict_load_and_hit_are_right_at_every_step():
    played = Played(*AWAY, *BACK, Add("A", (*WORDS, "h")), cache=CACHE)
    assert played.first_failure is None
    assert not any(happening.refused for happening, _ in played.steps)
    events = [happening.event for happening, _ in played.steps]
    loaded = [event for event in events if event.kind == "BlockLoaded"]
    assert len(loaded) == 3
    assert [event.block for event in events if event.kind == "BlockHit"] == [event.block for event in reversed(loaded)]
    kept = played.runner.log.stored
    assert same_bits(
        [played.runner.kv.chunk_k[:, chunk].to(played.runner.device) for chunk in kept],
        [rows.stacked_kv()[0] for rows in kept.values()],
    )


@pytest.mark.parametrize("how", ["fail", "cancel"])
def test_load_that_comes_to_nothing_leaves_nan_on_the_device(how):
    played = Played(*AWAY, Load(WORDS), EndTransfer(2, how), cache=CACHE)
    assert played.first_failure is None
    ended = played.steps[-1][0].event
    assert ended.kind == {"fail": "TierLoadFailed", "cancel": "TierLoadCancelled"}[how]
    assert played.runner.kv.k[:, list(ended.device_blocks)].isnan().all()
    chunks = played.runner.kv.chunk_k[:, list(ended.chunks)]
    assert chunks.isnan().all() if how == "fail" else chunks.isfinite().all()


@pytest.mark.parametrize("how", ["fail", "cancel"])
def test_store_that_comes_to_nothing_leaves_nan_on_the_host_and_the_device_as_it_was(how):
    played = Played(Add("A", WORDS), Store("A"), EndTransfer(1, how), Free("A"), Add("A", WORDS), cache=CACHE)
    assert played.first_failure is None
    assert played.runner.kv.chunk_k.isnan().all()
    assert played.runner.log.stored == {}


def test_chunks_that_go_to_others_are_poisoned_before_and_hold_the_others_then():
    played = Played(*AWAY, *MORE, EndTransfer(2, "finish"), cache=CACHE)
    assert played.first_failure is None
    assert "TierEvicted" in [happening.event.kind for happening, _ in played.steps]
    assert len(played.runner.log.stored) == len(played.state.tier.chunks) == 5


@pytest.mark.parametrize("host_write", ["write_through", "write_back"])
def test_requests_that_find_their_prompts_on_the_host_say_what_they_said(host_write):
    cache = replace(CACHE, host_chunks=12, policies=(("host_write", host_write),))
    ops = (Submit("A", WORDS, 2), EngineSteps(3), Submit("B", OTHERS[:13], 1), EngineSteps(2), Submit("C", WORDS, 2))
    played = Played(*ops, EngineSteps(6), cache=cache)
    assert played.first_failure is None
    assert "BlockLoaded" in [happening.event.kind for happening, _ in played.steps]
    said = {name: request.output for name, request in played.state.requests.items()}
    assert said["A"] == said["C"]


# --- broken on purpose ---


def first_failure(*ops):
    return Played(*ops, cache=CACHE).first_failure


def loaded_otherwise(failure):
    kind, check = failure
    return kind == "BlockLoaded" and any("is not what was stored of" in sentence for sentence in check.broken)


def test_load_that_is_skipped_is_found(monkeypatch):
    monkeypatch.setattr(Transfers, "load", lambda self, host_blocks, blocks: None)
    assert loaded_otherwise(first_failure(*AWAY, *BACK))


@pytest.mark.parametrize("what", [TierStoreBegun, TierLoadBegun])
def test_copies_that_are_mixed_up_are_found(monkeypatch, what):
    apply = KVCache.apply

    def mixed_up(self, event, *cached):
        if isinstance(event, what):
            event = replace(event, device_blocks=(*event.device_blocks[1:], event.device_blocks[0]))
        apply(self, event, *cached)

    monkeypatch.setattr(KVCache, "apply", mixed_up)
    assert loaded_otherwise(first_failure(*AWAY, *BACK))


def test_store_of_the_wrong_block_is_found(monkeypatch):
    real = Transfers.store
    monkeypatch.setattr(Transfers, "store", lambda self, blocks, places: real(self, [blocks[0]] * len(blocks), places))
    assert loaded_otherwise(first_failure(*AWAY, *BACK))


@pytest.mark.parametrize(
    ("left_by", "ops", "where"),
    [
        ("TierStoreFailed", (Add("A", WORDS), Store("A"), EndTransfer(1, "fail")), "host chunk"),
        ("TierLoadFailed", (*AWAY, Load(WORDS), EndTransfer(2, "fail")), "device block"),
        ("TierEvicted", (*AWAY, *MORE), "host chunk"),
    ],
)
def test_what_nobody_owns_any_more_is_named_where_it_keeps_its_numbers(monkeypatch, left_by, ops, where):
    apply = KVCache.apply
    monkeypatch.setattr(KVCache, "apply", lambda self, e, *more: None if e.kind == left_by else apply(self, e, *more))
    kind, check = first_failure(*ops)
    assert kind == left_by
    assert check.broken[0].startswith(f"poison: {where}")
