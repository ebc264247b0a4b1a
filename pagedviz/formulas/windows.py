"""The formulas of events of sliding windows."""

from pagedviz.engine.log.events.base import Event
from pagedviz.engine.log.events.windows import BlockOutOfWindow, NullBlockTaken, PrefixSkipped
from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.engine.policies.windows import first_seen, window_and_two_blocks
from pagedviz.scenario.choices import profile_of
from pagedviz.scenario.settings import CacheConfig


def lines(cache: CacheConfig, before: Snapshot, event: Event, after: Snapshot) -> list[str]:
    """Empty for any other event."""
    match event:
        case NullBlockTaken():
            free = len(after.free_blocks)
            return [f"free_queue[0] = {event.block}", f"free = {free + 1} − 1 = {free}"]
        case BlockOutOfWindow():
            return [
                *_released(cache, after.seq_len(event.seq_id), after.windows[event.group or 0], event.first_seen),
                f"block_table[{event.logical_block}]: {event.block} → {event.null_block}, the null block",
                f"ref_count[{event.block}] = {event.ref_count + 1} − 1 = {event.ref_count}",
            ]
        case PrefixSkipped():
            size, first, agreed = cache.block_size, event.num_blocks, list[str]()
            if event.group:  # group 0 has its entries already
                hit = len(after.block_tables[event.seq_id]) * size
                window = after.windows[event.group]
                seen = first_seen(hit, window)
                agreed = [f"tokens that every group agrees on = {hit}", *_below(cache, hit, window, seen)]
            return [
                *agreed,
                f"block_table[{'0' if first == 1 else f'0 … {first - 1}'}] = {event.null_block}, the null block",
                f"tokens without a block = {first} × {size} = {first * size}",
            ]
    return []


def group(cache: CacheConfig, event: Event) -> list[str]:
    """The group of a table entry, its layers, and the tokens that they see. Empty if there is one group."""
    number = getattr(event, "group", None)
    if number is None:
        return []
    layers = [str(layer) for layer in range(number, cache.num_layers, len(cache.windows))]
    seen = "all tokens" if (window := cache.windows[number]) is None else f"window {window}"
    return [f"group {number}, layer{'s' * (len(layers) > 1)} {', '.join(layers)}: {seen}"]


def _released(cache: CacheConfig, computed: int, window: int | None, seen: int) -> list[str]:
    """How many leading blocks are released, by the profile's rule."""
    assert window is not None
    if profile_of(cache).window_release is not window_and_two_blocks:
        return _below(cache, computed, window, seen)
    size = cache.block_size
    full, kept = computed // size, window // size + 2
    return [
        f"full blocks = floor({computed} / {size}) = {full}",
        f"kept = floor({window} / {size}) + 2 = {kept}",
        f"blocks released = {full} − {kept} = {full - kept}",
    ]


def _below(cache: CacheConfig, computed: int, window: int | None, seen: int) -> list[str]:
    return [
        f"first position seen = {computed} − {window} + 1 = {seen}",
        f"blocks below = floor({seen} / {cache.block_size}) = {seen // cache.block_size}",
    ]
