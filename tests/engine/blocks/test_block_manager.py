"""Each rule of the cache, on a pool small enough to follow by hand: 8 blocks of 4 tokens unless a test says so."""

from pagedviz.engine.log import errors
from pagedviz.engine.log.events.blocks import (
    BlockAllocated,
    BlockCopied,
    BlockFreed,
    BlockReleased,
    BlockShared,
    EntryRewritten,
    SequenceAdded,
    SequenceForked,
    SequenceFreed,
    TokensWritten,
    TokenWritten,
    WriteStopped,
)
from pagedviz.engine.log.events.transfers import BlockReloaded, BlockSpilled
from tests.engine.engine_cases import Watched, refused


def words(count: int) -> list[str]:
    return [f"w{i}" for i in range(count)]


# --- add ---


def test_prompt_takes_all_of_its_blocks_before_it_is_written_at_once():
    cache = Watched(3, block_size=2, free_blocks=[2, 0, 1])
    cache.engine_step = 5
    cache.add("A", ["Four", "score", "and"])
    reason = "a prompt of 3 needs ceil(3 / 2) = 2"
    assert cache.events == [
        SequenceAdded("A", num_tokens=3),
        BlockAllocated("A", logical_block=0, block=2, reason=reason),
        BlockAllocated("A", logical_block=1, block=0, reason=reason),
        TokensWritten("A", position=0, tokens=("Four", "score", "and"), slots=(4, 5, 0), engine_step=5),
    ]
    assert cache.snapshot().last_scheduled == {"A": 5}


def test_prompt_of_one_token_is_one_token_written():
    cache = Watched()
    cache.add("A", words(1))
    assert cache.kinds_since(0) == ["SequenceAdded", "BlockAllocated", "TokenWritten"]


def test_prompt_that_fills_its_blocks_takes_no_spare_one():
    cache = Watched()
    cache.add("A", words(8))
    assert cache.table == {"A": [0, 1]}


def test_prompt_larger_than_what_is_free_is_refused_whole():
    cache = Watched(4)
    cache.add("A", words(9))
    with refused(cache, errors.NoFreeBlocks, seq_id="B", needed=2, free=1, total=4):
        cache.add("B", words(5))


def test_prompt_larger_than_the_pool_can_never_fit():
    cache = Watched(4)
    with refused(cache, errors.NeverFits, seq_id="A", needed=5, total=4):
        cache.add("A", words(17))
    cache.add("A", words(16))
    assert cache.free_blocks == []


def test_name_in_use_is_refused():
    cache = Watched()
    cache.add("A", words(1))
    with refused(cache, errors.DuplicateSequence, seq_id="A"):
        cache.add("A", words(1))


def test_empty_prompt_is_refused():
    cache = Watched()
    with refused(cache, errors.NoTokens, seq_id="A"):
        cache.add("A", [])


# --- append ---


def test_append_takes_a_block_only_when_the_last_is_full():
    cache = Watched()
    cache.add("A", words(3))
    cache.append("A", ["fourth"])
    assert cache.table == {"A": [0]}
    cache.append("A", ["fifth"])
    assert cache.table == {"A": [0, 1]}
    assert cache.events[-2:] == [
        BlockAllocated("A", logical_block=1, block=1, reason="its last block is full"),
        TokenWritten("A", position=4, token="fifth", block=1, offset=0, slot=4, engine_step=0),
    ]


def test_slot_is_the_physical_block_times_its_size_plus_the_offset():
    cache = Watched(free_blocks=[7, 2, 0, 1, 3, 4, 5, 6])
    cache.add("A", words(5))
    cache.append("A", ["x"])
    assert cache.events[-1] == TokenWritten("A", position=5, token="x", block=2, offset=1, slot=9, engine_step=0)


def test_append_of_several_tokens_fills_the_tail_and_the_blocks_taken_before():
    cache = Watched(free_blocks=[7, 2, 5, 0, 1, 3, 4, 6])
    cache.add("A", words(3))
    reported = len(cache.events)
    cache.append("A", list("defghi"))
    reason = "3 + 6 tokens need ceil(9 / 4) = 3"
    assert cache.events[reported:] == [
        BlockAllocated("A", logical_block=1, block=2, reason=reason),
        BlockAllocated("A", logical_block=2, block=5, reason=reason),
        TokensWritten("A", position=3, tokens=tuple("defghi"), slots=(31, 8, 9, 10, 11, 20), engine_step=0),
    ]


def test_append_of_several_tokens_to_a_shared_tail_copies_then_allocates_then_writes():
    cache = Watched()
    cache.add("A", words(6))
    cache.fork("A", "B")
    reported = len(cache.events)
    cache.append("B", list("ghi"))
    assert cache.events[reported:] == [
        WriteStopped("B", logical_block=1, block=1, ref_count=2),
        BlockCopied("B", logical_block=1, source=1, target=2, num_slots=2),
        EntryRewritten("B", logical_block=1, source=1, target=2, ref_count=1),
        BlockAllocated("B", logical_block=2, block=3, reason="6 + 3 tokens need ceil(9 / 4) = 3"),
        TokensWritten("B", position=6, tokens=tuple("ghi"), slots=(10, 11, 12), engine_step=0),
    ]
    assert cache.table == {"A": [0, 1], "B": [0, 2, 3]}


def test_append_of_several_tokens_behind_a_full_shared_block_copies_nothing():
    cache = Watched()
    cache.add("A", words(4))
    cache.fork("A", "B")
    reported = len(cache.events)
    cache.append("B", words(5))
    assert cache.kinds_since(reported) == ["BlockAllocated", "BlockAllocated", "TokensWritten"]


def test_append_of_several_tokens_is_all_or_nothing():
    cache = Watched(3)
    cache.add("A", words(7))
    cache.add("B", words(1))
    with refused(cache, errors.NoFreeBlocks, seq_id="A", needed=1, free=0, total=3):
        cache.append("A", words(2))
    cache.append("A", words(1))
    assert cache.snapshot().seq_len("A") == 8


def test_append_that_outgrows_the_pool_can_never_fit():
    cache = Watched(2)
    cache.add("A", words(8))
    with refused(cache, errors.NeverFits, seq_id="A", needed=3, total=2):
        cache.append("A", words(1))


def test_append_of_nothing_is_refused():
    cache = Watched()
    cache.add("A", words(1))
    with refused(cache, errors.NoTokens, seq_id="A"):
        cache.append("A", [])


def test_append_to_a_sequence_that_is_not_resident_is_refused():
    cache = Watched()
    cache.add("A", words(5))
    cache.spill("A")
    with refused(cache, errors.NotResident, seq_id="A", host_blocks=[0, 1]):
        cache.append("A", ["x"])
    with refused(cache, errors.NotResident, seq_id="A", host_blocks=[0, 1]):
        cache.reserve("A", 1)


def test_reserving_takes_no_block():
    cache = Watched(2)
    cache.add("A", words(4))
    cache.reserve("A", 4)
    assert cache.free_blocks == [1]
    with refused(cache, errors.NeverFits, seq_id="A", needed=3, total=2):
        cache.reserve("A", 5)


def test_unknown_sequence_is_refused_with_the_names_there_are():
    cache = Watched()
    with refused(cache, errors.UnknownSequence, seq_id="X", known="none at all"):
        cache.append("X", ["x"])
    cache.add("A", words(1))
    cache.add("B", words(1))
    for operation in (
        lambda: cache.append("X", ["x"]),
        lambda: cache.reserve("X", 1),
        lambda: cache.fork("X", "Y"),
        lambda: cache.free("X"),
        lambda: cache.spill("X"),
        lambda: cache.reload("X"),
    ):
        with refused(cache, errors.UnknownSequence, seq_id="X", known="A, B"):
            operation()


# --- fork and copy-on-write ---


def test_fork_shares_every_block_and_takes_none():
    cache = Watched()
    cache.engine_step = 3
    cache.add("A", ["a", "b", "c", "d", "e", "f"])
    free, reported = cache.free_blocks, len(cache.events)
    cache.engine_step = 4
    cache.fork("A", "B")
    assert cache.events[reported:] == [
        SequenceForked("B", parent="A", num_blocks=2),
        BlockShared("B", "A", logical_block=0, block=0, where="device", ref_count=2, tokens=("a", "b", "c", "d")),
        BlockShared("B", "A", logical_block=1, block=1, where="device", ref_count=2, tokens=("e", "f")),
    ]
    assert cache.free_blocks == free
    assert cache.snapshot().tokens["B"] == ("a", "b", "c", "d", "e", "f")
    assert cache.snapshot().last_scheduled == {"A": 3, "B": 3}


def test_first_writer_copies_the_filled_slots_and_the_last_writes_in_place():
    cache = Watched()
    cache.add("A", words(6))
    cache.fork("A", "B")
    reported = len(cache.events)
    cache.append("A", ["x"])
    assert cache.events[reported:] == [
        WriteStopped("A", logical_block=1, block=1, ref_count=2),
        BlockCopied("A", logical_block=1, source=1, target=2, num_slots=2),
        EntryRewritten("A", logical_block=1, source=1, target=2, ref_count=1),
        TokenWritten("A", position=6, token="x", block=2, offset=2, slot=10, engine_step=0),
    ]
    reported = len(cache.events)
    cache.append("B", ["y"])
    assert cache.kinds_since(reported) == ["TokenWritten"]
    assert cache.table == {"A": [0, 2], "B": [0, 1]}


def test_target_is_pinned_until_the_entry_names_it():
    cache = Watched()
    cache.add("A", words(2))
    cache.fork("A", "B")
    pinned = []
    cache.watchers.append(lambda event: pinned.append((event.kind, cache.snapshot().pinned)))
    cache.append("B", ["x"])
    assert pinned == [("WriteStopped", ()), ("BlockCopied", (1,)), ("EntryRewritten", ()), ("TokenWritten", ())]


def test_each_of_three_sharers_but_the_last_makes_a_copy():
    cache = Watched()
    cache.add("A", words(3))
    cache.fork("A", "B")
    cache.fork("B", "C")
    assert cache.ref_counts == {0: 3}
    for seq_id in "ABC":
        cache.append(seq_id, ["x"])
    assert cache.table == {"A": [1], "B": [2], "C": [0]}
    assert [event.kind for event in cache.events].count("BlockCopied") == 2


def test_writing_at_a_block_boundary_needs_no_copy():
    cache = Watched()
    cache.add("A", words(4))
    cache.fork("A", "B")
    reported = len(cache.events)
    cache.append("B", ["x"])
    assert cache.kinds_since(reported) == ["BlockAllocated", "TokenWritten"]
    assert cache.table == {"A": [0], "B": [0, 1]}


def test_append_counts_the_copy_among_what_it_needs():
    cache = Watched(3)
    cache.add("A", words(6))
    cache.fork("A", "B")
    with refused(cache, errors.NoFreeBlocks, seq_id="B", needed=2, free=1, total=3):
        cache.append("B", words(3))
    cache.append("B", words(2))
    assert cache.table == {"A": [0, 1], "B": [0, 2]}


def test_copy_in_a_full_pool_is_refused():
    cache = Watched(1)
    cache.add("A", words(2))
    cache.fork("A", "B")
    with refused(cache, errors.NoFreeBlocks, seq_id="B", needed=1, free=0, total=1):
        cache.append("B", ["x"])


def test_last_sharer_writes_in_place_after_the_other_is_freed():
    cache = Watched(1)
    cache.add("A", words(2))
    cache.fork("A", "B")
    cache.free("A")
    cache.append("B", ["x"])
    assert cache.table == {"B": [0]}


def test_fork_under_a_name_in_use_is_refused():
    cache = Watched()
    cache.add("A", words(1))
    with refused(cache, errors.DuplicateSequence, seq_id="A"):
        cache.fork("A", "A")


def test_v1_refuses_to_fork_and_says_why():
    cache = Watched(profile="vllm-v1")
    cache.add("A", words(6))
    with refused(cache, errors.ForkUnsupported, seq_id="B", profile="vllm-v1"):
        cache.fork("A", "B")
    sentence = errors.ForkUnsupported(seq_id="B", profile="vllm-v1").sentence
    assert "there is no copy-on-write" in sentence
    assert '"fork": true' in sentence


def test_v1_forks_and_copies_when_the_scenario_says_so():
    cache = Watched(profile="vllm-v1", fork=True)
    cache.add("A", words(6))
    cache.fork("A", "B")
    cache.append("B", ["x"])
    assert cache.table == {"A": [1, 2], "B": [1, 3]}


# --- the null block ---


def test_v1_never_hands_out_the_null_block():
    cache = Watched(4, profile="vllm-v1")
    cache.add("A", words(12))
    assert cache.table == {"A": [1, 2, 3]}
    with refused(cache, errors.NeverFits, seq_id="A", needed=4, total=3):
        cache.append("A", ["x"])
    cache.free("A")
    assert cache.free_blocks == [3, 2, 1]
    assert cache.snapshot().null_block == 0


def test_v0_has_no_null_block():
    assert Watched(3).snapshot().null_block is None


# --- free ---


def test_free_lets_go_from_the_last_block_to_the_first():
    cache = Watched()
    cache.add("A", words(6))
    reported = len(cache.events)
    cache.free("A")
    assert cache.events[reported:] == [
        BlockFreed("A", logical_block=1, block=1, where="device", queue_index=0, num_tokens=4),
        BlockFreed("A", logical_block=0, block=0, where="device", queue_index=1, num_tokens=0),
        SequenceFreed("A"),
    ]
    assert cache.table == {}


def test_free_leaves_what_others_name():
    cache = Watched()
    cache.add("A", words(6))
    cache.fork("A", "B")
    cache.append("B", ["x"])
    reported = len(cache.events)
    cache.free("B")
    assert cache.events[reported:] == [
        BlockFreed("B", logical_block=1, block=2, where="device", queue_index=0, num_tokens=4),
        BlockReleased("B", logical_block=0, block=0, where="device", ref_count=1, num_tokens=0),
        SequenceFreed("B"),
    ]
    assert cache.table == {"A": [0, 1]}


def test_free_of_a_spilled_sequence_returns_its_host_blocks():
    cache = Watched()
    cache.add("A", words(6))
    cache.spill("A")
    cache.free("A")
    assert list(cache.host_pool.free_blocks) == [1, 0, 2, 3]
    assert cache.snapshot().host_ref_counts == {}


def test_free_of_a_half_spilled_sequence_gives_each_memory_its_own():
    cache = Watched()
    cache.add("A", words(6))
    cache.fork("A", "B")
    cache.append("A", ["x"])
    cache.spill("A")
    assert (cache.table["A"], cache.host_table["A"]) == ([0, None], [None, 0])
    cache.free("A")
    assert cache.ref_counts == {0: 1, 1: 1}
    assert list(cache.host_pool.free_blocks) == [0, 1, 2, 3]


# --- spill and reload ---


def test_spill_moves_every_block_and_frees_its_old_place():
    cache = Watched()
    cache.add("A", words(6))
    reported = len(cache.events)
    cache.spill("A")
    assert cache.events[reported:] == [
        BlockSpilled("A", ("A",), block=0, host_block=0, queue_index=0, reason="A was asked to leave the device"),
        BlockSpilled("A", ("A",), block=1, host_block=1, queue_index=0, reason="A was asked to leave the device"),
    ]
    assert (cache.table, cache.host_table) == ({"A": [None, None]}, {"A": [0, 1]})
    assert cache.free_blocks == [1, 0, 2, 3, 4, 5, 6, 7]
    assert not cache.snapshot().is_resident("A")


def test_spill_is_all_or_nothing():
    cache = Watched(host_blocks=1)
    cache.add("A", words(6))
    with refused(cache, errors.NoFreeHostBlocks, seq_id="A", needed=2, free=1, total=1):
        cache.spill("A")


def test_reload_may_land_on_other_blocks():
    cache = Watched()
    cache.add("A", words(6))
    cache.spill("A")
    cache.add("B", words(1))
    reported = len(cache.events)
    cache.reload("A")
    assert cache.events[reported:] == [
        BlockReloaded("A", ("A",), block=0, host_block=0, queue_index=0),
        BlockReloaded("A", ("A",), block=2, host_block=1, queue_index=0),
    ]
    assert cache.table == {"A": [0, 2], "B": [1]}
    assert list(cache.host_pool.free_blocks) == [1, 0, 2, 3]


def test_block_shared_with_a_resident_sequence_stays_and_travels_with_its_last_resident_sharer():
    cache = Watched()
    cache.add("A", words(6))
    cache.fork("A", "B")
    cache.append("A", ["x"])
    cache.append("B", ["y"])
    assert cache.table == {"A": [0, 2], "B": [0, 1]}
    cache.spill("A")
    assert (cache.table["A"], cache.host_table["A"]) == ([0, None], [None, 0])
    assert cache.ref_counts == {0: 2, 1: 1}
    reported = len(cache.events)
    cache.spill("B")
    assert [(event.block, event.host_block, event.seq_ids) for event in cache.events[reported:]] == [
        (0, 1, ("A", "B")),
        (1, 2, ("B",)),
    ]
    assert cache.host_table == {"A": [1, 0], "B": [1, 2]}
    assert cache.snapshot().host_ref_counts == {0: 1, 1: 2, 2: 1}


def test_sharing_is_the_same_after_the_round_trip():
    cache = Watched()
    cache.add("A", words(6))
    cache.fork("A", "B")
    cache.append("A", ["x"])
    tokens = cache.snapshot().tokens
    cache.spill("A")
    cache.spill("B")
    cache.reload("A")
    assert cache.snapshot().is_resident("A")
    assert not cache.snapshot().is_resident("B")
    cache.reload("B")
    a, b = cache.table["A"], cache.table["B"]
    assert a[0] == b[0]
    assert a[1] != b[1]
    assert cache.ref_counts == {a[0]: 2, a[1]: 1, b[1]: 1}
    assert cache.snapshot().tokens == tokens


def test_reloading_one_sharer_brings_the_shared_block_for_both():
    cache = Watched()
    cache.add("A", words(5))
    cache.fork("A", "B")
    cache.append("A", ["x"])
    cache.spill("A")
    cache.spill("B")
    reported = len(cache.events)
    cache.reload("B")
    assert cache.events[reported].seq_ids == ("A", "B")
    assert cache.table["A"][0] == cache.table["B"][0] is not None
    assert cache.table["A"][1] is None


def test_spill_of_what_resident_sequences_also_name_is_refused():
    cache = Watched()
    cache.add("A", words(6))
    cache.fork("A", "B")
    with refused(cache, errors.SharedWithResident, seq_id="A", blocks=[0, 1]):
        cache.spill("A")


def test_spill_twice_and_reload_twice_are_refused():
    cache = Watched()
    cache.add("A", words(6))
    with refused(cache, errors.AlreadyResident, seq_id="A"):
        cache.reload("A")
    cache.spill("A")
    with refused(cache, errors.AlreadySpilled, seq_id="A"):
        cache.spill("A")


def test_reload_without_room_is_refused():
    cache = Watched(2)
    cache.add("A", words(8))
    cache.spill("A")
    cache.add("B", words(1))
    with refused(cache, errors.NoFreeBlocks, seq_id="A", needed=2, free=1, total=2):
        cache.reload("A")


def test_fork_of_a_spilled_sequence_shares_its_host_blocks():
    cache = Watched()
    cache.add("A", words(6))
    cache.spill("A")
    cache.fork("A", "B")
    assert cache.host_table == {"A": [0, 1], "B": [0, 1]}
    assert cache.snapshot().host_ref_counts == {0: 2, 1: 2}
    cache.reload("B")
    assert cache.table["A"] == cache.table["B"]
    assert cache.snapshot().is_resident("A")


def test_writing_into_a_block_that_a_spilled_sequence_shares_copies_it():
    cache = Watched()
    cache.add("A", words(6))
    cache.fork("A", "B")
    cache.fork("A", "C")
    cache.append("C", ["x"])
    cache.spill("C")
    cache.append("B", ["y"])
    assert cache.table == {"A": [0, 1], "B": [0, 2], "C": [0, None]}


# --- automatic spill ---


def test_automatic_spill_is_off_by_default():
    cache = Watched(2)
    cache.add("A", words(8))
    with refused(cache, errors.NoFreeBlocks, seq_id="B", needed=1, free=0, total=2):
        cache.add("B", words(1))


def full_of_three(**options: object) -> Watched:
    """A, B and C hold a block each, and wrote last in the steps 3, 1 and 2."""
    cache = Watched(3, auto_spill=True, **options)
    for step, seq_id in ((1, "A"), (1, "B"), (2, "C")):
        cache.engine_step = step
        cache.add(seq_id, words(2))
    cache.engine_step = 3
    cache.append("A", ["x"])
    cache.engine_step = 4
    return cache


def test_automatic_spill_takes_the_least_recently_scheduled_first():
    cache = full_of_three()
    cache.add("D", words(8))
    assert cache.table == {"A": [0], "B": [None], "C": [None], "D": [2, 1]}
    reasons = [event.reason for event in cache.events if event.kind == "BlockSpilled"]
    assert reasons == [
        "D needs room and B was scheduled longest ago",
        "D needs room and C was scheduled longest ago",
    ]


def test_automatic_spill_moves_no_more_sequences_than_needed():
    cache = full_of_three()
    cache.add("D", words(1))
    assert cache.table == {"A": [0], "B": [None], "C": [2], "D": [1]}


def test_automatic_spill_keeps_the_blocks_of_whom_it_serves():
    cache = full_of_three()
    cache.append("B", words(3))
    assert cache.table == {"A": [0], "B": [1, 2], "C": [None]}


def test_automatic_spill_serves_a_reload():
    cache = full_of_three()
    cache.spill("A")
    cache.add("D", words(1))
    cache.reload("A")
    assert cache.table == {"A": [1], "B": [None], "C": [2], "D": [0]}


def test_automatic_spill_that_cannot_make_enough_room_moves_nothing():
    cache = full_of_three(host_blocks=1)
    with refused(cache, errors.NoFreeBlocks, seq_id="D", needed=2, free=0, total=3):
        cache.add("D", words(8))


def test_automatic_spill_is_not_tried_for_what_can_never_fit():
    cache = full_of_three()
    with refused(cache, errors.NeverFits, seq_id="D", needed=4, total=3):
        cache.add("D", words(13))


def test_automatic_spill_passes_over_whom_the_host_cannot_take_whole():
    cache = Watched(3, host_blocks=1, auto_spill=True)
    cache.add("A", words(8))
    cache.add("B", words(1))
    cache.add("C", words(1))
    assert cache.table == {"A": [0, 1], "B": [None], "C": [2]}


def test_automatic_spill_leaves_a_block_that_the_served_sequence_shares():
    cache = Watched(3, auto_spill=True)
    cache.add("A", words(4))
    cache.fork("A", "B")
    cache.append("A", ["x"])
    cache.append("B", words(5))
    assert (cache.table["A"], cache.table["B"]) == ([0, None], [0, 1, 2])


def test_automatic_spill_leaves_a_block_that_a_reloaded_sequence_still_has():
    cache = Watched(3, auto_spill=True)
    cache.add("A", words(5))
    cache.fork("A", "B")
    cache.append("B", ["x"])
    cache.spill("A")
    cache.add("C", words(1))
    assert cache.table == {"A": [0, None], "B": [0, 2], "C": [1]}
    reported = len(cache.events)
    cache.reload("A")
    assert cache.kinds_since(reported) == ["BlockSpilled", "BlockReloaded"]
    assert cache.table == {"A": [0, 2], "B": [0, None], "C": [1]}


def test_automatic_spill_moves_a_block_once_that_two_spilled_sequences_share():
    """Block 0 stayed for R alone, which is gone: A and B, both away, still name it."""
    cache = Watched(4, auto_spill=True, host_blocks=4)
    cache.add("A", words(4))
    cache.fork("A", "B")
    cache.fork("A", "R")
    cache.append("B", ["x"])
    cache.append("A", ["y"])
    cache.add("E", words(1))
    cache.spill("A")
    cache.spill("B")
    cache.free("R")
    assert cache.table == {"A": [0, None], "B": [0, None], "E": [3]}
    cache.add("D", words(16))
    assert cache.table == {"A": [None, None], "B": [None, None], "E": [None], "D": [3, 0, 1, 2]}
    assert cache.snapshot().host_ref_counts == {0: 1, 1: 1, 2: 2, 3: 1}


def test_automatic_spill_moves_sequences_that_share_all_of_their_blocks():
    cache = Watched(2, auto_spill=True)
    cache.add("A", words(6))
    cache.fork("A", "B")
    cache.add("C", words(1))
    assert cache.host_table["A"] == cache.host_table["B"] == [0, 1]
    assert cache.snapshot().host_ref_counts == {0: 2, 1: 2}
