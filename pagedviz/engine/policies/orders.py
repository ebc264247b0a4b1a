"""Which of the waiting requests is served next. An order is one function: it returns them with the next one first."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request that waits.

    `arrival` counts the requests as they came, so no two are equal; a preempted request keeps its own. A smaller
    `priority` is more urgent. The cache holds `num_hit_tokens` of its tokens now; another admission may change that.
    """

    seq_id: str
    arrival: int
    priority: int = 0
    num_hit_tokens: int = 0


Order = Callable[[Sequence[Waiting]], list[Waiting]]


def first_come(waiting: Sequence[Waiting]) -> list[Waiting]:
    """The request that came first. Source: the default of vLLM V1 and of SGLang."""
    return sorted(waiting, key=lambda request: request.arrival)


def by_priority(waiting: Sequence[Waiting]) -> list[Waiting]:
    """The smallest priority; of equal ones, the request that came first. Source: vLLM V1's "priority"."""
    return sorted(waiting, key=lambda request: (request.priority, request.arrival))


def longest_prefix_first(waiting: Sequence[Waiting]) -> list[Waiting]:
    """The request with the most cached tokens, before they are evicted; of equal ones, the request that came first.

    A request may wait for ever. Example: the cache holds 4 tokens of A, 8 of B, 4 of C -> B, A, C.
    Source: SGLang's "lpm". It also delays a request that finds little and shares its prefix with another waiting one,
    so that it finds the prefix later; and it serves more than 128 waiting requests as they came.
    """
    return sorted(waiting, key=lambda request: (-request.num_hit_tokens, request.arrival))
