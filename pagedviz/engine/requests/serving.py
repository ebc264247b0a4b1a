"""Waiting requests are served one after the other, in a policy's order, by any cache of prefixes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from pagedviz.engine.log.events.base import Token
from pagedviz.engine.policies.orders import Order, Waiting

Prompts = Mapping[str, Sequence[Token]]  # by seq_id, in the order in which they arrived


class PrefixCaching(Protocol):
    """A cache of prefixes: blocks with a chain of hashes, or pages with a tree."""

    def num_hit_tokens(self, tokens: Sequence[Token], /) -> int: ...

    def add(self, seq_id: str, tokens: Sequence[Token], /) -> object: ...

    def free(self, seq_id: str, /) -> object: ...


def one_by_one(cache: PrefixCaching, prompts: Prompts, order: Order) -> Iterator[tuple[str, int]]:
    """Serve every prompt. Each one is finished before the next is chosen.

    Yields the name of each admitted request, and how many of its tokens were hit. The order is computed again each
    time, because cached tokens may have been evicted meanwhile.
    """
    arrivals = {seq_id: arrival for arrival, seq_id in enumerate(prompts)}
    while arrivals:
        hits = {seq_id: cache.num_hit_tokens(prompts[seq_id]) for seq_id in arrivals}
        waiting = [Waiting(seq_id, arrival, num_hit_tokens=hits[seq_id]) for seq_id, arrival in arrivals.items()]
        chosen = order(waiting)[0].seq_id
        del arrivals[chosen]
        cache.add(chosen, prompts[chosen])
        yield chosen, hits[chosen]
        cache.free(chosen)
