"""A request: a prompt, and how many tokens to generate behind it."""

from dataclasses import dataclass, field

from pagedviz.engine.events import Token


@dataclass(slots=True)
class Request:
    """`output` are the tokens generated so far; the newest of them is in no slot yet. `num_tokens` are wanted.

    `arrival` counts the requests. The smaller `priority` goes first, where a policy looks at it. `says` are outputs
    that were given with the request; then none is sampled. `prefill_until` tokens were known when it was admitted.
    """

    seq_id: str
    prompt: tuple[Token, ...]
    num_tokens: int
    arrival: int
    priority: int = 0
    salt: str | None = None
    says: tuple[Token, ...] = ()
    output: list[Token] = field(default_factory=list)
    prefill_until: int = 0

    @property
    def tokens(self) -> list[Token]:
        """All that is known of it: what the cache holds when it has been computed."""
        return [*self.prompt, *self.output]

    @property
    def most_tokens(self) -> int:
        """How many slots it may come to take: the last output is never written."""
        return len(self.prompt) + self.num_tokens - 1

    @property
    def outputs_left(self) -> int:
        return self.num_tokens - len(self.output)
