"""What a scheduler does beyond the rows that real engines printed: refusals, victims, queues, swaps."""

import contextlib

import pytest

from pagedviz.engine.blocks.changes import caching
from pagedviz.engine.log import errors
from pagedviz.engine.policies.limits import Limits
from tests.engine.requests.request_cases import WatchedScheduler


def kinds(scheduler, *wanted):
    return [event for event in scheduler.events if event.kind in wanted]


@contextlib.contextmanager
def refused(scheduler, error, **numbers):
    before, reported = scheduler.snapshot(), len(scheduler.events)
    with pytest.raises(error) as raised:
        yield
    assert type(raised.value) is error
    assert raised.value.numbers == numbers
    assert scheduler.snapshot() == before
    assert len(scheduler.events) == reported


# --- what is refused ---


def test_request_that_can_never_fit_is_refused_with_the_numbers_when_it_is_submitted():
    scheduler = WatchedScheduler(4)
    with refused(scheduler, errors.NeverFits, seq_id="A", needed=4, total=3):
        scheduler.submit("A", range(9), 5)
    scheduler.submit("A", range(9), 4)  # the last output takes no slot, so 12 slots are enough


def test_request_that_may_outgrow_a_step_is_refused_where_prompts_are_not_split():
    scheduler = WatchedScheduler(9, limits=Limits(8), chunking="never_split")
    with refused(scheduler, errors.OverBudget, seq_id="A", most=9, budget=8):
        scheduler.submit("A", range(6), 4)
    scheduler.submit("A", range(6), 3)


def test_names_are_given_once_and_prompts_are_not_empty():
    scheduler = WatchedScheduler(9)
    scheduler.manager.add("A", "xy")
    scheduler.submit("B", "xy", 1)
    for name in ("A", "B"):
        with refused(scheduler, errors.DuplicateSequence, seq_id=name):
            scheduler.submit(name, "z", 1)
    with refused(scheduler, errors.NoTokens, seq_id="C"):
        scheduler.submit("C", "", 1)
    scheduler.step()
    with refused(scheduler, errors.DuplicateSequence, seq_id="B"):  # it has finished, and its outputs are still shown
        scheduler.submit("B", "z", 1)


def test_there_is_nothing_to_schedule_or_to_abort_without_a_request():
    scheduler = WatchedScheduler(9)
    with refused(scheduler, errors.NothingToSchedule):
        scheduler.step()
    with refused(scheduler, errors.UnknownRequest, seq_id="A", known="none at all"):
        scheduler.abort("A")
    scheduler.submit("B", "xy", 2)
    with refused(scheduler, errors.UnknownRequest, seq_id="A", known="B"):
        scheduler.abort("A")


# --- a request's life ---


def test_sampled_and_written_are_two_moments_and_the_last_output_is_never_written():
    scheduler = WatchedScheduler(9)
    scheduler.submit("A", "abc", 2)
    scheduler.step(lambda seq_id: "x")
    state = scheduler.snapshot()
    assert (state.tokens["A"], state.requests["A"].output) == (("a", "b", "c"), ("x",))
    scheduler.step(lambda seq_id: "y")
    state = scheduler.snapshot()
    assert state.requests["A"].output == ("x", "y")
    assert (dict(state.block_tables), state.running, state.scheduled) == ({}, (), {})
    written = [write.tokens for event in scheduler.events if hasattr(event, "writes") for write in event.writes]
    assert written == [("a", "b", "c"), ("x",)]


def test_a_chunk_that_is_not_the_last_has_no_output():
    scheduler = WatchedScheduler(9, limits=Limits(4))
    scheduler.submit("A", "abcdefg", 1)
    assert (scheduler.step(), scheduler.requests["A"].output) == ({"A": 4}, [])
    assert (scheduler.step(), scheduler.requests["A"].output) == ({"A": 3}, ["t"])


@pytest.mark.parametrize("queue", ["waiting", "running", "swapped"])
def test_an_aborted_request_owns_nothing_wherever_it_was(queue):
    scheduler = WatchedScheduler(6, host_blocks=6, preemption="swap", prefix_caching=False)
    scheduler.submit("A", "abcdefg", 9)
    scheduler.submit("B", "hijklm", 9)
    for _ in range({"waiting": 0, "running": 1, "swapped": 4}[queue]):
        scheduler.step()
    assert "B" in getattr(scheduler, queue)
    scheduler.abort("B")
    assert not scheduler.owns("B")
    assert scheduler.manager.sequences.keys() <= {"A"}
    assert len(scheduler.manager.host_pool.free_blocks) == 6
    while scheduler.has_work:
        scheduler.step()
    assert len(scheduler.free_blocks) == 5


# --- which request is next, and which is preempted ---


def test_the_smaller_priority_is_admitted_first_and_the_largest_has_to_go():
    scheduler = WatchedScheduler(6, order="by_priority", victim="least_urgent", prefix_caching=False)
    scheduler.submit("late", "abcdefg", 9, priority=2)
    scheduler.submit("soon", "hijklm", 9, priority=1)
    scheduler.step()
    assert scheduler.running == ["soon", "late"]
    while not kinds(scheduler, "RequestPreempted"):
        scheduler.step()
    (event,) = kinds(scheduler, "RequestPreempted")
    assert (event.seq_id, event.requester) == ("late", "soon")


def test_request_with_the_fewest_outputs_is_preempted_and_of_equals_the_longer_prompt():
    scheduler = WatchedScheduler(6, victim="fewest_outputs", prefix_caching=False)
    scheduler.submit("A", "abcdefg", 9)
    scheduler.submit("B", "hijklm", 9)
    while not kinds(scheduler, "RequestPreempted"):
        scheduler.step()
    (event,) = kinds(scheduler, "RequestPreempted")
    assert (event.seq_id, event.requester) == ("A", "B")


def test_of_requests_alike_the_last_admitted_is_retracted():
    """As SGLang's sort leaves them, which takes from the end."""
    scheduler = WatchedScheduler(6, victim="fewest_outputs", prefix_caching=False)
    scheduler.submit("A", "abcdef", 9)
    scheduler.submit("B", "hijklm", 9)
    while not kinds(scheduler, "RequestPreempted"):
        scheduler.step()
    (event,) = kinds(scheduler, "RequestPreempted")
    assert (event.seq_id, event.requester) == ("B", "B")


def test_longest_prefix_first_admits_the_request_that_finds_most():
    scheduler = WatchedScheduler(9, order="longest_prefix_first", limits=Limits(100, max_num_seqs=1))
    scheduler.manager.add("seen", "abcdefgh")
    scheduler.submit("first", "xyz", 1)
    scheduler.submit("cached", "abcdefghi", 1)
    scheduler.step()
    assert [event.seq_id for event in kinds(scheduler, "RequestAdmitted")] == ["cached"]


def test_static_batches_admit_no_request_until_all_have_finished():
    ran = {}
    for batching in ("static_batches", "running_first"):
        scheduler = WatchedScheduler(20, batching=batching, limits=Limits(100, max_num_seqs=2), prefix_caching=False)
        for name, num_tokens in (("A", 1), ("B", 4), ("C", 2)):
            scheduler.submit(name, "ab", num_tokens)
        ran[batching] = []
        while scheduler.has_work:
            ran[batching].append("".join(scheduler.step()))
    assert ran == {"static_batches": ["AB", "B", "B", "B", "C", "C"], "running_first": ["AB", "BC", "BC", "B"]}


def test_prompts_go_before_decodes_where_a_step_is_one_or_the_other():
    scheduler = WatchedScheduler(20, profile="vllm-v0", prefix_caching=False)
    scheduler.submit("A", "ab", 4)
    scheduler.step()
    scheduler.submit("B", "cd", 2)
    assert [scheduler.step() for _ in range(2)] == [{"B": 2}, {"A": 1, "B": 1}]


def test_sglang_gives_a_chunk_its_blocks_when_it_is_computed():
    scheduler = WatchedScheduler(9, profile="sglang", prefix_caching=False, limits=Limits(4))
    scheduler.submit("A", "abcdefghij", 2)
    tables = []
    for _ in range(3):
        scheduler.step()
        tables.append(scheduler.table["A"])
    assert tables == [[1], [1, 2], [1, 2, 3]]


def test_a_step_in_which_nothing_happens_says_why_each_time():
    scheduler = WatchedScheduler(4, prefix_caching=False)
    scheduler.manager.add("held", "abcdefgh")
    scheduler.submit("A", "ijklm", 1)
    assert [scheduler.step(), scheduler.step()] == [{}, {}]
    reason = "it needs 2 free blocks, and the pool has 1"
    assert [event.reason for event in kinds(scheduler, "RequestWaits")] == [reason, reason]
    scheduler.manager.free("held")
    scheduler.submit("B", "nopqrstu", 1)
    scheduler.step()
    assert [event.seq_id for event in kinds(scheduler, "RequestWaits")] == ["A", "A", "B"]


def test_expected_outputs_of_running_requests_keep_others_waiting_in_sglang():
    scheduler = WatchedScheduler(7, profile="sglang", prefix_caching=False)
    scheduler.submit("A", "abcd", 17)
    scheduler.submit("B", "efghijklm", 2)
    assert scheduler.step() == {"A": 4}
    (waits,) = kinds(scheduler, "RequestWaits")
    assert waits.reason == "it needs 3 free blocks, and the pool has 5, of which 4 should stay free"


# --- preempted in the step in which it was scheduled already ---


def test_hash_of_a_block_that_will_not_be_filled_is_taken_back_with_its_block():
    scheduler = WatchedScheduler(4, block_size=2, victim="least_urgent")
    scheduler.submit("low", "abc", 3, priority=1)
    scheduler.submit("high", "xy", 2)
    scheduler.step(lambda seq_id: "t")
    assert scheduler.table == {"low": [1, 2], "high": [3]}
    assert scheduler.step(lambda seq_id: "t") == {"high": 1}
    reported = [event.kind for event in scheduler.events]
    published = [e for e in kinds(scheduler, "BlockCached") if (e.seq_id, e.block) == ("low", 2)]
    assert [event.tokens for event in published] == [("c", "t")]
    (evicted,) = [event for event in kinds(scheduler, "BlockEvicted") if event.block == 2]
    assert (evicted.reason, evicted.ref_count) == ("it was never filled", 1)
    assert reported.index("RequestPreempted") < len(reported) - reported[::-1].index("BlockEvicted")
    assert scheduler.manager.longest_prefix([*"abct", "?"]) == [1]


def test_tokens_behind_a_block_that_is_being_filled_come_with_the_launch_too():
    scheduler = WatchedScheduler(9, block_size=2, limits=Limits(100))
    scheduler.manager.add("old", "abcd")
    scheduler.manager.free("old")
    caching.evict(scheduler.manager.state, 1, "the test says so")  # only the second block of the chain is cached
    scheduler.submit("A", "abcx", 2)
    scheduler.submit("B", "abcde", 2)
    scheduler.step()
    hits = [(e.seq_id, e.block, e.computed) for e in kinds(scheduler, "BlockHit")]
    first = scheduler.table["A"][0]
    assert hits == [("B", first, False), ("B", 2, False)]
    assert scheduler.snapshot().tokens["B"] == tuple("abcde")


# --- swap ---


def test_swapped_request_comes_back_before_a_new_one_and_to_other_blocks():
    scheduler = WatchedScheduler(6, host_blocks=6, preemption="swap", prefix_caching=False)
    scheduler.submit("A", "abcdefg", 9)
    scheduler.submit("B", "hijklm", 9)
    while not scheduler.swapped:
        scheduler.step()
    assert scheduler.table["B"] == [None, None]
    scheduler.submit("C", "n", 1)
    while scheduler.waiting:
        scheduler.step()
    assert [(e.kind, e.seq_id) for e in kinds(scheduler, "RequestSwappedIn", "RequestAdmitted")] == [
        ("RequestAdmitted", "A"),
        ("RequestAdmitted", "B"),
        ("RequestSwappedIn", "B"),
        ("RequestAdmitted", "C"),
    ]
    moved = [(event.host_block, event.block) for event in kinds(scheduler, "BlockReloaded")]
    left = {event.host_block: event.block for event in kinds(scheduler, "BlockSpilled")}
    assert [(left[host_block], block) for host_block, block in moved] == [(3, 4), (4, 5)]


def test_the_watermark_stays_free_when_a_request_comes_back_from_the_host():
    """As vLLM V0's `can_swap_in` has it."""
    came_back = {}
    for watermark in (0.0, 0.25):
        scheduler = WatchedScheduler(
            8,
            block_size=2,
            host_blocks=8,
            profile="vllm-v0",
            preemption="swap",
            prefix_caching=False,
            limits=Limits(1_000, watermark=watermark),
        )
        scheduler.submit("A", "abc", 8)
        scheduler.submit("B", "def", 4)
        scheduler.step()
        scheduler._preempt(scheduler.requests["B"], scheduler.requests["A"])
        scheduler.manager.add("held", "ghijk")
        scheduler.step()
        came_back[watermark] = "B" in scheduler.running
    assert came_back == {0.0: True, 0.25: False}


def test_request_that_cannot_come_back_from_the_host_is_dropped_and_says_why():
    scheduler = WatchedScheduler(5, block_size=2, host_blocks=4, preemption="swap", prefix_caching=False)
    scheduler.submit("A", "abc", 4)
    scheduler.step()
    scheduler.manager.add("held", "wxyz")
    assert [scheduler.step(), scheduler.step()] == [{"A": 1}, {}]
    (preempted,) = kinds(scheduler, "RequestPreempted")
    assert preempted.sentence == (
        "A was preempted, because it needs more blocks than are free. All of its blocks move to the host."
    )
    (dropped,) = kinds(scheduler, "RequestDropped")
    assert dropped.sentence == (
        "A gave up all of its blocks, on the host and on the device, because it does not fit on the device, and no "
        "request is running that would free blocks. It waits again, with the same 5 tokens."
    )


def test_blocks_that_others_name_stay_when_their_sequence_moves_to_the_host():
    scheduler = WatchedScheduler(8, block_size=2, host_blocks=4, preemption="swap")
    scheduler.submit("A", "abcx", 9)
    scheduler.submit("B", "aby", 9)
    scheduler.step()
    scheduler._preempt(scheduler.requests["B"], scheduler.requests["A"])
    (event,) = kinds(scheduler, "RequestPreempted")
    assert event.then == "1 of its 2 blocks moves to the host. Other sequences name the rest"


def test_two_on_the_host_that_hold_the_pool_do_not_wait_for_ever():
    scheduler = WatchedScheduler(5, block_size=2, host_blocks=2, preemption="swap", prefix_caching=False)
    scheduler.submit("A", "abc", 5)
    scheduler.submit("B", "def", 5)
    for _ in range(60):
        if scheduler.has_work:
            scheduler.step()
    assert not scheduler.has_work
