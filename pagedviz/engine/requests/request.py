"""A request: a prompt, and how many tokens to generate behind it, once or in several sequences at a time."""

from dataclasses import dataclass, field

from pagedviz.engine.log.events.base import Token


@dataclass(slots=True)
class Request:
    """`outputs` are the tokens generated so far, by sequence; the newest of each is in no slot yet. `num_tokens` are
    wanted of each. `num_named` counts the names that its sequences were given.

    `arrival` counts the requests. The smaller `priority` goes first, where a policy looks at it. `says` are outputs
    that were given with the request; then none is sampled. `prefill_until` tokens were known when it was admitted.

    With several `samples` or `beams` it goes on as so many sequences from its prompt on, all of one length. The prompt
    is computed once, by the first; `forked` says that the others are there. `scores` are the beams' sums of
    log-probabilities.
    """

    seq_id: str
    prompt: tuple[Token, ...]
    num_tokens: int
    arrival: int
    priority: int = 0
    salt: str | None = None
    says: tuple[Token, ...] = ()
    samples: int = 1
    beams: int = 1
    outputs: dict[str, list[Token]] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    prefill_until: int = 0
    forked: bool = False
    num_named: int = 0

    def __post_init__(self) -> None:
        if not self.outputs:
            self.outputs = {self.new_name(): []}

    @property
    def width(self) -> int:
        """How many sequences it goes on as."""
        return max(self.samples, self.beams)

    @property
    def output(self) -> list[Token]:
        """Of its first sequence."""
        return self.outputs[self.first]

    @property
    def first(self) -> str:
        """The sequence that computes the prompt."""
        return next(iter(self.outputs))

    @property
    def tokens(self) -> list[Token]:
        """All that is known of its first sequence: what the cache holds when it has been computed."""
        return [*self.prompt, *self.output]

    @property
    def to_compute(self) -> list[Token]:
        """What the first sequence computes by itself: all that is known, or the prompt where others share it."""
        return list(self.prompt) if self.width > 1 and not self.forked else self.tokens

    @property
    def most_tokens(self) -> int:
        """How many slots a sequence of it may come to take: the last output is never written."""
        return len(self.prompt) + self.num_tokens - 1

    @property
    def outputs_left(self) -> int:
        return self.num_tokens - len(self.output)

    def new_name(self) -> str:
        """Of its next sequence: its own, or numbered where there are several. Example: "A.1", "A.2"."""
        self.num_named += 1
        return self.seq_id if self.width == 1 else f"{self.seq_id}.{self.num_named}"
