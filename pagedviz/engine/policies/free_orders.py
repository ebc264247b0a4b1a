"""Where a block goes in the free queue when no table names it any more. Each order is one function."""

from collections.abc import Callable
from dataclasses import dataclass, field

from pagedviz.engine.policies.free_queue import FreeQueue, Recency


@dataclass(frozen=True, slots=True)
class Freed:
    """A block on its way back. `cached`: it keeps its tokens and may be hit until it goes out again.

    `run` holds the blocks that the same operation has put before the head so far. `recency` is (the engine step in
    which a sequence that named it was last scheduled, minus its logical block): the smaller goes out first.
    """

    block: int
    cached: bool = False
    recency: Recency = (0, 0)
    run: list[int] = field(default_factory=list)


FreeOrder = Callable[[FreeQueue, Freed], int]


def head_of_queue(queue: FreeQueue, freed: Freed) -> int:
    """Blocks freed together go before the head of the free queue as one run, in the order in which they were freed.

    Example: a table [1, 2, 3] is freed from its tail, so 3, 2, 1 take places 0, 1, 2 and 3 goes out next.
    Source: vLLM V0's naive allocator (last in, first out) and V1's `free_blocks` for blocks without a hash.
    """
    queue.insert(freed.block, freed.run[-1] if freed.run else None)
    freed.run.append(freed.block)
    return len(freed.run) - 1


def end_of_queue(queue: FreeQueue, freed: Freed) -> int:
    """Every block goes to the end. Source: nano-vllm."""
    queue.insert(freed.block, queue.last)
    return len(queue) - 1


def cached_last(queue: FreeQueue, freed: Freed) -> int:
    """Cached blocks go to the end, so that they are evicted last; the others before the head, as one run.

    Example: [1, 2, 3] of which 1 and 2 are cached is freed before [4, 5] -> [3, 4, 5, 2, 1]. Source: vLLM V1.
    """
    return (end_of_queue if freed.cached else head_of_queue)(queue, freed)


def least_recent_first(queue: FreeQueue, freed: Freed) -> int:
    """Cached blocks go out by their last use, and of one time the deeper first; the others before all, as one run.

    Takes the longer the more blocks were used later than this one: none when frees come in order of time.
    Source: what vLLM V0 means by its evictor; V0 itself stops at the first newer block and so misses some (S30).
    """
    if not freed.cached:
        return head_of_queue(queue, freed)
    behind, place = queue.last, len(queue)
    while behind is not None and behind in queue.recency and queue.recency[behind] > freed.recency:
        behind, place = queue.before(behind), place - 1
    queue.insert(freed.block, behind, freed.recency)
    return place
