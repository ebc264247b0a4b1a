"""A request: a prompt, and how many tokens to generate behind it, in one sequence or in several."""

from dataclasses import dataclass, field

from pagedviz.engine.log.events.base import Token


@dataclass(slots=True)
class Request:
    """`outputs` are the tokens generated so far, by sequence. The newest token of each is not yet in a slot. Each
    sequence generates `num_tokens`. `num_named` counts the names that its sequences have been given.

    `arrival` counts the requests as they came. A smaller `priority` is served first, if the policy uses it. `says` are
    outputs given with the request; then none is sampled. `prefill_until` tokens were known when it was admitted.

    With several `samples` or `beams` it has as many sequences behind its prompt, all of one length. The first sequence
    computes the prompt; `forked` is True when the others exist. `scores` are the beams' sums of log-probabilities.
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
        """How many sequences it has behind its prompt."""
        return max(self.samples, self.beams)

    @property
    def output(self) -> list[Token]:
        """The outputs of its first sequence."""
        return self.outputs[self.first]

    @property
    def first(self) -> str:
        """The sequence that computes the prompt."""
        return next(iter(self.outputs))

    @property
    def tokens(self) -> list[Token]:
        """All known tokens of its first sequence. The cache holds them when they have been computed."""
        return [*self.prompt, *self.output]

    @property
    def to_compute(self) -> list[Token]:
        """The tokens that its first sequence computes: all known ones, or only the prompt when others will share it."""
        return list(self.prompt) if self.width > 1 and not self.forked else self.tokens

    @property
    def most_tokens(self) -> int:
        """How many slots one of its sequences takes at most: the last output is never written."""
        return len(self.prompt) + self.num_tokens - 1

    @property
    def outputs_left(self) -> int:
        return self.num_tokens - len(self.output)

    def new_name(self) -> str:
        """The name of its next sequence: the request's own, or a numbered one if there are several ("A.1", "A.2")."""
        self.num_named += 1
        return self.seq_id if self.width == 1 else f"{self.seq_id}.{self.num_named}"
