"""Events of requests. The scheduler reports them.

A request waits, runs or is swapped out. It has a sequence with a block table only while it runs or is swapped out.
"""

from dataclasses import dataclass

from pagedviz.engine.log.events.base import Event, Token
from pagedviz.engine.log.text import sentences


@dataclass(frozen=True)
class RequestSubmitted(Event):
    """{seq_id} was submitted: a prompt of {tokens:token}, and {num_tokens} more to generate{how_often}. It is {place}
    in the queue."""

    seq_id: str
    tokens: tuple[Token, ...]
    num_tokens: int
    priority: int
    salt: str | None
    queue_index: int
    samples: int = 1
    beams: int = 1

    @property
    def phrases(self) -> dict[str, str]:
        samples = f", in {self.samples} samples" if self.samples > 1 else ""
        how_often = f", with {self.beams} beams" if self.beams > 1 else samples
        return {"how_often": how_often, "place": sentences.ordinal(self.queue_index + 1)}


@dataclass(frozen=True)
class StepStarted(Event):
    """Engine step {engine_step} began. Its launch may compute {token_budget:token}, over all sequences."""

    engine_step: int
    token_budget: int


@dataclass(frozen=True)
class RequestAdmitted(Event):
    """{seq_id} left the waiting queue, and runs now."""

    seq_id: str


@dataclass(frozen=True)
class RequestScheduled(Event):
    """This step's launch will compute {num_tokens:token} of {seq_id}. That leaves {budget_left:token} of the budget."""

    seq_id: str
    num_tokens: int
    budget_left: int


@dataclass(frozen=True)
class RequestWaits(Event):
    """{seq_id} has to wait: {reason}."""

    seq_id: str
    reason: str


@dataclass(frozen=True)
class RequestPreempted(Event):
    """{seq_id} was preempted, because {needy} needs more blocks than are free. {then}."""

    seq_id: str
    requester: str
    num_tokens: int
    how: str
    then: str

    @property
    def phrases(self) -> dict[str, str]:
        return {"needy": "it" if self.requester == self.seq_id else self.requester}


@dataclass(frozen=True)
class RequestSwappedIn(Event):
    """All blocks of {seq_id} are on the device again, and it runs."""

    seq_id: str


@dataclass(frozen=True)
class RequestDropped(Event):
    """{seq_id} gave up all of its blocks, on the host and on the device, because {reason}. It waits again, with the
    same {num_tokens:token}."""

    seq_id: str
    num_tokens: int
    reason: str


@dataclass(frozen=True)
class RequestForked(Event):
    """{seq_id}'s prompt is computed. {seq_id} continues as {seq_ids}, which all name the prompt's blocks."""

    seq_id: str
    seq_ids: tuple[str, ...]


@dataclass(frozen=True)
class BeamsChosen(Event):
    """The likeliest continuations of {seq_id}'s beams stay: {said}{then}."""

    seq_id: str  # the request
    seq_ids: tuple[str, ...]
    parents: tuple[str, ...]  # the sequence whose outputs each one continues: itself, or the one it is forked from
    tokens: tuple[Token, ...]
    scores: tuple[float, ...]  # sums of log-probabilities
    pruned: tuple[str, ...]
    said: str

    @property
    def phrases(self) -> dict[str, str]:
        return {"then": f". Pruned: {sentences.named(self.pruned)}" if self.pruned else ""}


@dataclass(frozen=True)
class TokensSampled(Event):
    """The step's outputs are known: {said}. The newest token of each sequence is not in a slot yet. The sequence's next
    launch writes it."""

    seq_ids: tuple[str, ...]
    tokens: tuple[tuple[Token, ...], ...]  # for each sequence its accepted drafts, and one more token
    said: str


@dataclass(frozen=True)
class RequestFinished(Event):
    """{seq_id} is finished after {num_tokens:output}. It gives up its blocks. Its last output was never written."""

    seq_id: str
    num_tokens: int


@dataclass(frozen=True)
class RequestAborted(Event):
    """{seq_id} was aborted after {num_tokens:output}. It keeps no blocks."""

    seq_id: str
    num_tokens: int
