"""At which place a block enters the free queue when no table names it any more. Each order is one function.

This decides the order of eviction too: a cached block is evicted when it leaves at the head of the queue.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from pagedviz.engine.policies.free_queue import FreeQueue, Recency


@dataclass(frozen=True, slots=True)
class Freed:
    """A block that enters the free queue. `cached`: it keeps its tokens and can be hit until it is handed out again.

    `run` lists the blocks that the same operation has put before the head so far. `recency` is (the last engine step
    in which a sequence that named the block was scheduled, minus its logical block). The smaller is handed out first.
    """

    block: int
    cached: bool = False
    recency: Recency = (0, 0)
    run: list[int] = field(default_factory=list)


FreeOrder = Callable[[FreeQueue, Freed], int]


def head_of_queue(queue: FreeQueue, freed: Freed) -> int:
    """Blocks freed together go before the head of the free queue as one run, in the order in which they are freed.

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
    """Cached blocks go to the end, so they are evicted last. The others go before the head, as one run.

    Example: [1, 2, 3] of which 1 and 2 are cached is freed before [4, 5] -> [3, 4, 5, 2, 1]. Source: vLLM V1.
    """
    return (end_of_queue if freed.cached else head_of_queue)(queue, freed)


def least_recent_first(queue: FreeQueue, freed: Freed) -> int:
    """Cached blocks leave in the order of their last use, deeper blocks first. The others go before the head.

    The search passes every block that was used later than this one: none when blocks are freed in order of their use.
    Source: the intention of vLLM V0's evictor. V0 itself stops at the first newer block, and so misses some (S30).
    """
    if not freed.cached:
        return head_of_queue(queue, freed)
    behind, place = queue.last, len(queue)
    while behind is not None and behind in queue.recency and queue.recency[behind] > freed.recency:
        behind, place = queue.before(behind), place - 1
    queue.insert(freed.block, behind, freed.recency)
    return place
