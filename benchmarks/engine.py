"""How fast the block manager does its bookkeeping: no tensors, no checks; one thread of this machine.

    python -m benchmarks.engine [--rounds 5]

256 sequences grow to 2,048 tokens by one token at a time, blocks of 16. "Events on" keeps each event in a list, "off"
makes the events and drops them. Admissions are of 144 tokens, 128 of them cached. No snapshot is taken: a caller
chooses when to take one. Times are processor times, which other programs on the machine change little.
"""

import argparse
import platform
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator

from pagedviz.engine.log.events.base import Event
from pagedviz.engine.manager.block_manager import BlockManager
from pagedviz.engine.policies.profiles import PROFILES

SEQUENCES, TOKENS, BLOCK_SIZE = 256, 2_048, 16
PREFIX, OWN = 128, 16  # tokens of an admission
POOLS = (1_000, 100_000)


def manager(num_blocks: int, report: Callable[[Event], None], *, prefix_caching: bool = True) -> BlockManager:
    profile = PROFILES["vllm-v1"]
    return BlockManager(
        block_size=BLOCK_SIZE,
        num_blocks=num_blocks,
        free_blocks=range(profile.null_block, num_blocks),
        host_blocks=0,
        profile=profile,
        auto_spill=False,
        report=report,
        prefix_caching=prefix_caching,
    )


def dropped(event: Event) -> None:
    """Takes an event and does nothing with it."""


def appends(report: Callable[[Event], None], prefix_caching: bool) -> float:
    """Appended tokens a second, all sequences in turn."""
    cache = manager(SEQUENCES * TOKENS // BLOCK_SIZE + 1, report, prefix_caching=prefix_caching)
    names = [f"s{n}" for n in range(SEQUENCES)]
    for n, name in enumerate(names):
        cache.add(name, [n])
    started = time.process_time()
    for token in range(1, TOKENS):
        for name in names:
            cache.append(name, (token,))
    return SEQUENCES * (TOKENS - 1) / (time.process_time() - started)


def admissions(report: Callable[[Event], None]) -> float:
    """Prompts admitted a second, each with a cached prefix; freeing them is not counted."""
    cache = manager(4_096, report)
    prefix, spent = list(range(PREFIX)), 0.0
    cache.add("first", [*prefix, -1])
    for n in range(2_000):
        prompt = [*prefix, *range(n * OWN, (n + 1) * OWN)]
        started = time.process_time()
        cache.add("x", prompt)
        spent += time.process_time() - started
        cache.free("x")
    return 2_000 / spent


def moves(num_blocks: int) -> Iterator[tuple[str, float]]:
    """Microseconds a block: to free one, to hit one in the middle of the free queue, and to evict one."""
    cache = manager(num_blocks, dropped)
    length = BLOCK_SIZE * 2
    names = [f"s{n}" for n in range((num_blocks - 1) // 2)]
    for n, name in enumerate(names):
        cache.add(name, range(n * length, (n + 1) * length))
    chosen = names[len(names) // 4 : len(names) // 4 + 200]
    others = [name for name in names if name not in set(chosen)]
    for name in others[: len(others) // 2]:
        cache.free(name)

    def timed(work: Callable[[str], None], calls: list[str], blocks: int) -> float:
        started = time.process_time()
        for name in calls:
            work(name)
        return (time.process_time() - started) / (len(calls) * blocks) * 1e6

    yield "free", timed(cache.free, chosen, 2)
    for name in others[len(others) // 2 :]:
        cache.free(name)
    hit = {name: range((n := int(name[1:])) * length, (n + 1) * length - 1) for name in chosen}
    yield "hit (and take one)", timed(lambda name: cache.add(name, hit[name]), chosen, 2)
    for name in chosen:
        cache.free(name)
    fresh = {name: range(10**7 + int(name[1:]) * length, 10**7 + (int(name[1:]) + 1) * length) for name in chosen}
    yield "evict (and cache)", timed(lambda name: cache.add(name, fresh[name]), chosen, 2)


def bytes_per_block() -> float:
    """Python's own memory for each block in use, hashed, with the tokens' own integers left out."""
    tokens = list(range(TOKENS))
    tracemalloc.start()
    cache = manager(16 * TOKENS // BLOCK_SIZE + 1, dropped)
    empty = tracemalloc.get_traced_memory()[0]
    for n in range(16):
        cache.add(f"s{n}", tokens, salt=str(n))
    used = tracemalloc.get_traced_memory()[0] - empty
    tracemalloc.stop()
    return used / (16 * TOKENS // BLOCK_SIZE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="the median of so many (default 5)")
    rounds = parser.parse_args().rounds

    def median(measure: Callable[[], float]) -> float:
        return statistics.median(measure() for _ in range(rounds))

    print(f"Python {platform.python_version()}, {platform.machine()}, {sys.platform}, median of {rounds}\n")
    print("| what | a second |\n|---|---|")
    for label, caching in (("caching", True), ("no caching", False)):
        events: list[Event] = []

        def kept(caching: bool = caching, events: list[Event] = events) -> float:
            events.clear()
            return appends(events.append, caching)

        print(f"| appends, events on, {label} | {median(kept):,.0f} |")
        events.clear()
        print(f"| appends, events off, {label} | {median(lambda caching=caching: appends(dropped, caching)):,.0f} |")
    print(f"| admissions, events on | {median(lambda: admissions([].append)):,.0f} |")
    print(f"| admissions, events off | {median(lambda: admissions(dropped)):,.0f} |")
    print("\n| µs a block | " + " | ".join(f"pool of {size:,}" for size in POOLS) + " |\n|---|---|---|")
    measured = [[dict(moves(size)) for size in POOLS] for _ in range(rounds)]
    for what in measured[0][0]:
        cells = (statistics.median(one[k][what] for one in measured) for k in range(len(POOLS)))
        print(f"| {what} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |")
    print(f"\n{bytes_per_block():,.0f} bytes a block in use")


if __name__ == "__main__":
    main()
