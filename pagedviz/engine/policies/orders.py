"""Who of the waiting is looked at next. An order is one function: it returns them with the next one first."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request that waits.

    `arrival` counts requests as they came, no two alike; who was preempted keeps theirs. A smaller `priority` is more
    urgent. `num_hit_tokens` are those of its tokens that the cache holds now: another admission may change them.
    """

    seq_id: str
    arrival: int
    priority: int = 0
    num_hit_tokens: int = 0


Order = Callable[[Sequence[Waiting]], list[Waiting]]


def first_come(waiting: Sequence[Waiting]) -> list[Waiting]:
    """Whoever came first. Source: the default of vLLM V1 and of SGLang."""
    return sorted(waiting, key=lambda request: request.arrival)


def by_priority(waiting: Sequence[Waiting]) -> list[Waiting]:
    """The smallest priority first; of one priority, whoever came first. Source: vLLM V1's "priority"."""
    return sorted(waiting, key=lambda request: (request.priority, request.arrival))


def longest_prefix_first(waiting: Sequence[Waiting]) -> list[Waiting]:
    """Whoever finds the most tokens cached, before they are evicted; of as many, whoever came first.

    Nobody is protected from waiting for ever. Example: A finds 4, B 8, C 4 -> B, A, C.
    Source: SGLang's "lpm", which also puts off those that find little and share their prefix with another one waiting,
    so that they find it later, and serves more than 128 as they came.
    """
    return sorted(waiting, key=lambda request: (-request.num_hit_tokens, request.arrival))
