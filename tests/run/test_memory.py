"""The numbers of a state: slots on the device, blocks on the host."""

from pagedviz.run.memory import Memory, memory
from tests.engine.engine_cases import Watched


def test_empty_pool_is_all_free():
    assert memory(Watched(5).snapshot()) == Memory(filled=0, unfilled=0, free=20, entries=0, blocks=0, host_blocks=0)


def test_null_block_is_neither_free_nor_used():
    assert memory(Watched(5, profile="vllm-v1").snapshot()).free == 16


def test_shared_slots_count_once_and_entries_each_time():
    cache = Watched(5)
    cache.add("A", range(6))
    cache.fork("A", "B")
    assert memory(cache.snapshot()) == Memory(filled=6, unfilled=2, free=12, entries=4, blocks=2, host_blocks=0)
    cache.append("B", ["x"])
    assert memory(cache.snapshot()) == Memory(filled=4 + 2 + 3, unfilled=3, free=8, entries=4, blocks=3, host_blocks=0)


def test_spilled_blocks_leave_the_device():
    cache = Watched(5)
    cache.add("A", range(6))
    cache.spill("A")
    assert memory(cache.snapshot()) == Memory(filled=0, unfilled=0, free=20, entries=0, blocks=0, host_blocks=2)


def test_slots_of_the_device_add_up_at_every_event():
    cache = Watched(6, block_size=3)
    for operation in (lambda: cache.add("A", range(7)), lambda: cache.fork("A", "B"), lambda: cache.append("B", "xy")):
        operation()
        m = memory(cache.snapshot())
        assert m.filled + m.unfilled + m.free == 18


def test_every_group_has_slots_of_its_own_and_an_entry_out_of_the_window_has_none():
    """Of 11 tokens a window of 4 shows 8 to 10, and the twelfth lets go of two blocks."""
    cache = Watched(9, profile="vllm-v1", windows=[None, 4])
    cache.add("A", range(11))
    assert memory(cache.snapshot()) == Memory(filled=22, unfilled=2, free=8, entries=6, blocks=6, host_blocks=0)
    cache.append("A", ["x"])
    assert memory(cache.snapshot()) == Memory(filled=12 + 4, unfilled=0, free=16, entries=4, blocks=4, host_blocks=0)
