"""Drafts: they have slots, are verified by one launch, and what the model would not have said is taken back."""

import pytest

from pagedviz.engine.log.errors import DraftsPending, NeverFits, NoFreeBlocks
from pagedviz.engine.policies.limits import Speculation
from pagedviz.engine.requests import outputs
from tests.engine.engine_cases import Watched, refused
from tests.engine.requests.request_cases import WatchedScheduler, generated


def drafted(num_tokens: int = 6, drafts=(7, 8, 9), **settings) -> Watched:
    cache = Watched(9, profile="vllm-v1", prefix_caching=True, **settings)
    cache.add("a", range(num_tokens))
    cache.draft("a", "next", drafts)
    return cache


def test_drafts_take_slots_before_they_are_written():
    cache = drafted()
    assert cache.table == {"a": [1, 2, 3]}
    assert cache.snapshot().seq_len("a") == 6
    assert cache.snapshot().drafted == {"a": (7, 8, 9)}
    assert cache.events[-2].position == 7


@pytest.mark.parametrize("num_accepted", [0, 1, 2, 3])
def test_verifying_keeps_a_prefix_and_names_the_slots_of_the_rest(num_accepted):
    cache = drafted()
    cache.write(["a"])
    assert cache.snapshot().unverified == {"a": 3}
    cache.verify("a", num_accepted)
    state = cache.snapshot()
    assert state.tokens["a"] == (*range(6), "next", *(7, 8, 9)[:num_accepted])
    assert state.unverified == state.drafted == {}
    event = cache.events[-1]
    assert event.kind == "DraftsVerified"
    # Positions 7, 8 and 9: the last slot of block 2, the first two of block 3.
    assert event.slots == (11, 12, 13)[num_accepted:]
    assert state.block_tables["a"] == (1, 2, 3)


def test_a_block_of_accepted_drafts_gets_its_hash_with_the_next_tokens_and_one_of_rejected_ones_never():
    cache = drafted(num_tokens=5)
    cache.write(["a"])
    assert cache.cached == {1}
    cache.verify("a", 1)
    cache.append("a", ["other"])
    assert cache.cached == {1, 2}
    assert cache.snapshot().cached[2].tokens == (4, "next", 7, "other")


def test_rolled_back_slots_are_written_again():
    cache = drafted()
    cache.write(["a"])
    cache.verify("a", 0)
    cache.append("a", ["x", "y"])
    written = [e.slots for e in cache.events if e.kind == "TokensWritten"]
    assert written[1:] == [(10, 11, 12, 13), (11, 12)]
    assert cache.table == {"a": [1, 2, 3]}


def test_trimming_frees_what_only_rejected_drafts_had_filled():
    cache = drafted(rollback="trim_blocks")
    cache.write(["a"])
    free = cache.free_blocks
    cache.verify("a", 1)
    assert cache.table == {"a": [1, 2]}
    assert cache.free_blocks == [3, *free]


def test_nothing_else_is_done_to_a_sequence_whose_drafts_wait():
    cache = drafted(fork=True)
    for operation in (
        lambda: cache.append("a", [1]),
        lambda: cache.draft("a", 1, [2]),
        lambda: cache.fork("a", "b"),
        lambda: cache.spill("a"),
    ):
        with refused(cache, DraftsPending, seq_id="a", drafts=3):
            operation()
    cache.free("a")
    assert cache.snapshot().drafted == {}


def test_blocks_kept_for_later_are_no_room_for_the_copy_of_a_shared_tail():
    cache = Watched(4, profile="vllm-v1", fork=True)
    cache.add("a", range(5))
    cache.draft("a", "next", [1, 2, 3])
    cache.write(["a"])
    cache.verify("a", 0)
    assert cache.table == {"a": [1, 2, 3]}
    cache.fork("a", "b")
    with refused(cache, NoFreeBlocks, seq_id="a", needed=1, free=0, total=3):
        cache.append("a", ["x"])


def test_drafts_that_find_no_block_are_refused_whole():
    cache = Watched(4, profile="vllm-v1")
    cache.add("a", range(9))
    with refused(cache, NeverFits, seq_id="a", needed=4, total=3):
        cache.draft("a", "next", [1, 2, 3])


def test_who_waits_to_be_verified_is_not_spilled_for_others():
    cache = Watched(6, profile="vllm-v0", auto_spill=True, host_blocks=2)
    cache.add("a", range(4))
    cache.add("b", range(8))
    cache.draft("a", "next", [1])
    cache.engine_step += 1
    cache.append("b", [1])
    with refused(cache, NoFreeBlocks, seq_id="c", needed=2, free=1, total=6):
        cache.add("c", range(8))


@pytest.mark.parametrize("publish", ["when_scheduled", "when_written"])
def test_what_drafts_filled_is_hit_only_once_it_is_verified(publish):
    cache = drafted(num_tokens=5, publish=publish)
    prompt = [*range(5), "next", 7, 8, 0]
    assert len(cache.longest_prefix(prompt)) == 1
    cache.write(["a"])
    assert len(cache.longest_prefix(prompt)) == 1
    cache.verify("a", 2)
    # Where hashes are given when tokens are scheduled, the next launch gives it.
    assert len(cache.longest_prefix(prompt)) == (2 if publish == "when_written" else 1)


@pytest.mark.parametrize("publish", ["when_scheduled", "when_written"])
def test_nobody_hits_what_the_launch_of_drafts_is_still_to_fill(publish):
    cache = drafted(num_tokens=7, publish=publish)
    prompt = [*range(7), "next", 0]
    assert cache.cached == {1}
    cache.add("b", prompt)  # a launch before the one that the drafts wait for
    assert cache.table["b"][1] not in cache.table["a"]
    cache.write(["a"])
    cache.verify("a", 0)
    cache.append("a", ["x"])
    assert cache.cached >= {1, 2}


# --- served ---


def serve(scheduler: WatchedScheduler, guess) -> list[int]:
    """Take steps until nobody is left; `guess` drafts behind a sequence's tokens. Returns the tokens of each launch."""
    launches = []
    while scheduler.has_work and len(launches) < 100:
        scheduler.manager.engine_step += 1
        scheduler.schedule()
        launches.append(sum(scheduler.scheduled.values()))
        scheduler.write()
        said = {seq_id: answers(scheduler, seq_id) for seq_id in outputs.due(scheduler)}
        outputs.sampled(scheduler, said)
        for seq_id in said:
            if seq_id in scheduler.running:
                known = scheduler.requests[seq_id].tokens
                drafts = guess(known)[: scheduler.num_drafts(seq_id)]
                scheduler.propose(seq_id, drafts, [])
    return launches


def answers(scheduler: WatchedScheduler, seq_id: str) -> list:
    """What the model says behind the newest token that is known, and behind each draft that it says as well."""
    seq = scheduler.manager.sequences[seq_id]
    position, said = seq.seq_len - seq.unverified, []
    while True:
        said += generated(seq.tokens[:position], 1)
        if position == seq.seq_len or seq.tokens[position] != said[-1]:
            return said
        position += 1


def right(tokens, k=4):
    return generated(list(tokens), k)


def half_right(tokens):
    return [token if i % 2 == 0 else "?" for i, token in enumerate(right(tokens))]


@pytest.mark.parametrize("guess", [right, half_right, lambda tokens: ["?"] * 4])
def test_outputs_do_not_depend_on_the_drafts(guess):
    scheduler = WatchedScheduler(20, speculation=Speculation(num_drafts=3))
    for name in "AB":
        scheduler.submit(name, list("abc"), 9)
    serve(scheduler, guess)
    for request in scheduler.requests.values():
        assert request.output == generated(list("abc"), 9)


def test_right_drafts_save_launches():
    def launches(num_drafts):
        scheduler = WatchedScheduler(20, speculation=Speculation(num_drafts=num_drafts))
        scheduler.submit("A", list("abc"), 9)
        return serve(scheduler, right)

    assert launches(0) == [3, 1, 1, 1, 1, 1, 1, 1, 1]
    # The prompt says one; then 4 and 4 in a launch, of which 1 and 3 drafts each time.
    assert launches(3) == [3, 4, 4]


def test_a_busy_engine_verifies_fewer():
    scheduler = WatchedScheduler(20, speculation=Speculation(num_drafts=3, load_limit=4))
    for name in "AB":
        scheduler.submit(name, list("abc"), 9)
    launches = serve(scheduler, right)
    assert launches[1] == 2 + 4
    dropped = [(e.seq_id, len(e.tokens)) for e in scheduler.events if e.kind == "DraftsDropped"]
    assert dropped[0] == ("B", 2)


def test_a_preempted_request_drops_its_drafts():
    scheduler = WatchedScheduler(5, speculation=Speculation(num_drafts=2))
    scheduler.submit("A", list("abcdef"), 7)
    scheduler.submit("B", list("bcdefg"), 7)
    serve(scheduler, half_right)
    assert any(e.kind == "DraftsDropped" and e.reason == "it was preempted" for e in scheduler.events)
    assert [r.output for r in scheduler.requests.values()] == [generated(list(p), 7) for p in ("abcdef", "bcdefg")]
