"""Which requests computed how many tokens in each engine step, and how many they read: counted from a run's events."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pagedviz.engine.log.events.base import Event
from pagedviz.engine.log.events.blocks import BatchWritten, TokensWritten, TokenWritten
from pagedviz.engine.log.events.requests import (
    RequestAborted,
    RequestAdmitted,
    RequestFinished,
    RequestPreempted,
    RequestSubmitted,
    StepStarted,
    TokensSampled,
)


@dataclass(slots=True)
class StepCounts:
    """What one engine step did. `unfinished` requests were there when it began. `prefilled` requests computed tokens of
    their prompts. `sampled` sequences have one more output after it.

    `read` counts, by sequence, the tokens that its new tokens attended to, the new ones included. Each is counted once
    a step, because a kernel must load its K and V at least once. `scores` counts it once for each new token.
    """

    engine_step: int
    token_budget: int
    unfinished: tuple[str, ...]
    admitted: list[str] = field(default_factory=list)
    preempted: list[str] = field(default_factory=list)
    computed: dict[str, int] = field(default_factory=dict)
    prefilled: list[str] = field(default_factory=list)
    read: dict[str, int] = field(default_factory=dict)
    scores: dict[str, int] = field(default_factory=dict)
    sampled: tuple[str, ...] = ()
    finished: list[str] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        return sum(self.computed.values())


def timetable(events: Iterable[Event]) -> list[StepCounts]:
    """The engine steps of a run, in order.

    Example: a prompt of 6 computed 4 and 2 at a time -> computed 4, then 2; read 4, then 6; scores 10, then 11.
    """
    rows: list[StepCounts] = []
    prompts: dict[str, int] = {}  # tokens of each unfinished request's prompt
    for event in events:
        match event:
            case RequestSubmitted():
                prompts[event.seq_id] = len(event.tokens)
            case RequestAborted():
                prompts.pop(event.seq_id)
            case StepStarted():
                rows.append(StepCounts(event.engine_step, event.token_budget, tuple(prompts)))
            case RequestAdmitted():
                rows[-1].admitted.append(event.seq_id)
            case RequestPreempted():
                rows[-1].preempted.append(event.seq_id)
            case TokenWritten() | TokensWritten() | BatchWritten():
                for write in event.writes:
                    if write.seq_id in prompts:
                        _note(rows[-1], write.seq_id, write.position, len(write.tokens), prompts[write.seq_id])
            case TokensSampled():
                rows[-1].sampled = event.seq_ids
            case RequestFinished():
                rows[-1].finished.append(event.seq_id)
                prompts.pop(event.seq_id)
    return rows


def _note(row: StepCounts, seq_id: str, position: int, num_tokens: int, prompt: int) -> None:
    until = position + num_tokens
    row.computed[seq_id] = num_tokens
    row.read[seq_id] = until
    row.scores[seq_id] = sum(range(position + 1, until + 1))
    if position < prompt:
        row.prefilled.append(seq_id)


def idle_seats(rows: Sequence[StepCounts], max_num_seqs: int) -> int:
    """Of `max_num_seqs` seats in every step, how many were left empty."""
    return sum(max_num_seqs - len(row.computed) for row in rows)


def waits(rows: Sequence[StepCounts], seq_id: str) -> list[list[StepCounts]]:
    """For each output of a request but the first: the steps after the output before it, up to its own.

    Example: A's outputs come in the first, second and fourth step -> [[second], [third, fourth]].
    """
    at = [i for i, row in enumerate(rows) if seq_id in row.sampled]
    return [list(rows[i + 1 : j + 1]) for i, j in pairwise(at)]
