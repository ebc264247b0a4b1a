"""What can happen to requests: the scheduler's events, told as those of the blocks are.

A request waits, runs or is swapped out. Its sequence, with a block table, is there only while it runs or is swapped.
"""

from dataclasses import dataclass

from pagedviz.engine.log.events.base import Event, Token
from pagedviz.engine.log.text import sentences


@dataclass(frozen=True)
class RequestSubmitted(Event):
    """{seq_id} was submitted: a prompt of {tokens:token}, and {num_tokens} more to generate{how_often}. It waits at
    place {queue_index} of the queue."""

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
        samples = f", {self.samples} times over, by chance" if self.samples > 1 else ""
        return {"how_often": f", by {self.beams} beams" if self.beams > 1 else samples}


@dataclass(frozen=True)
class StepStarted(Event):
    """Engine step {engine_step} began. Its launch may compute {token_budget:token}, whoever they belong to."""

    engine_step: int
    token_budget: int


@dataclass(frozen=True)
class RequestAdmitted(Event):
    """{seq_id} left the waiting queue and runs from now on."""

    seq_id: str


@dataclass(frozen=True)
class RequestScheduled(Event):
    """{seq_id} was given {num_tokens:token} of this step's launch, which leaves {budget_left:token} of the budget."""

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
    """{seq_id} was preempted, because {who} needs more blocks than are free. {then}."""

    seq_id: str
    requester: str
    num_tokens: int
    how: str
    then: str

    @property
    def phrases(self) -> dict[str, str]:
        return {"who": "it" if self.requester == self.seq_id else self.requester}


@dataclass(frozen=True)
class RequestSwappedIn(Event):
    """{seq_id} is whole on the device again, and runs."""

    seq_id: str


@dataclass(frozen=True)
class RequestDropped(Event):
    """{seq_id} gave up all that it had on the host and on the device, because {reason}. It waits again, and its
    {num_tokens:token} will be computed anew."""

    seq_id: str
    num_tokens: int
    reason: str


@dataclass(frozen=True)
class RequestForked(Event):
    """{seq_id}'s prompt is computed, and it goes on as {seq_ids}: all of them name its blocks."""

    seq_id: str
    seq_ids: tuple[str, ...]


@dataclass(frozen=True)
class BeamsChosen(Event):
    """Of all that {seq_id}'s beams could say next, the likeliest stay: {said}{then}."""

    seq_id: str  # the request
    seq_ids: tuple[str, ...]
    parents: tuple[str, ...]  # whose outputs each goes on from: its own, or those of the one it is forked from
    tokens: tuple[Token, ...]
    scores: tuple[float, ...]  # sums of log-probabilities
    pruned: tuple[str, ...]
    said: str

    @property
    def phrases(self) -> dict[str, str]:
        return {"then": f". Pruned: {sentences.named(self.pruned)}" if self.pruned else ""}


@dataclass(frozen=True)
class TokensSampled(Event):
    """The step's outputs are known: {said}. The newest of each is in no slot yet: the launch that computes the next
    one writes it."""

    seq_ids: tuple[str, ...]
    tokens: tuple[tuple[Token, ...], ...]  # one for each, behind the drafts of it that were accepted
    said: str


@dataclass(frozen=True)
class RequestFinished(Event):
    """{seq_id} is finished after {num_tokens:output}. It lets go of everything; the last output was never written."""

    seq_id: str
    num_tokens: int


@dataclass(frozen=True)
class RequestAborted(Event):
    """{seq_id} was aborted after {num_tokens:output}. Nothing stays its own."""

    seq_id: str
    num_tokens: int
