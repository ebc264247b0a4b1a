"""Requests that wait are served one after the other, in some order, by whatever caches prefixes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from pagedviz.engine.log.events.base import Token
from pagedviz.engine.policies.orders import Order, Waiting

Prompts = Mapping[str, Sequence[Token]]  # by seq_id, in the order in which they arrived


class PrefixCaching(Protocol):
    """Blocks and a chain of hashes, or pages and a tree."""

    def num_hit_tokens(self, tokens: Sequence[Token], /) -> int: ...

    def add(self, seq_id: str, tokens: Sequence[Token], /) -> object: ...

    def free(self, seq_id: str, /) -> object: ...


def one_by_one(cache: PrefixCaching, prompts: Prompts, order: Order) -> Iterator[tuple[str, int]]:
    """Serve every prompt, each finished before the next is chosen.

    Yields who has been admitted and how many of its tokens were hit. The order is asked anew each time, for what was
    hit a moment ago may have been evicted.
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
