"""What must hold for requests and their queues after every event."""

from collections import Counter
from collections.abc import Iterator

from pagedviz.engine.log.events.base import Event
from pagedviz.engine.log.events.blocks import (
    Written,
)
from pagedviz.engine.log.events.requests import RequestSubmitted, StepStarted, TokensSampled
from pagedviz.engine.log.snapshot import Snapshot


def queues(before: Snapshot, event: Event, after: Snapshot) -> Iterator[str]:
    """A request is in one queue at most. A running or swapped request has a block table. A request that waits, has
    finished or was aborted has none."""
    for seq_id, times in Counter((*after.waiting, *after.running, *after.swapped)).items():
        if times > 1:
            yield f"{seq_id} is in the queues {times} times"
        if seq_id not in after.requests:
            yield f"{seq_id} is in a queue, and is not a request"
    if not isinstance(event, Written | StepStarted | RequestSubmitted | TokensSampled):
        return  # in the middle of a change of several events
    for seq_id, request in after.requests.items():
        owns = any(own in after.block_tables for own in request.outputs)
        lives = seq_id in after.running or seq_id in after.swapped
        if owns != lives:
            yield f"{seq_id} {'owns a block table' if owns else 'has none'}, and {'runs' if lives else 'does not run'}"


def within_budget(before: Snapshot, event: Event, after: Snapshot) -> Iterator[str]:
    """A launch computes no more than the token budget, only for running requests, and exactly what was scheduled."""
    if sum(after.scheduled.values()) > after.token_budget:
        yield f"{sum(after.scheduled.values())} tokens are scheduled, and the budget is {after.token_budget}"
    running = {own for seq_id in after.running for own in after.requests[seq_id].outputs}
    for seq_id in after.scheduled.keys() - running:
        yield f"{seq_id} is scheduled, and does not run"
    if isinstance(event, Written):
        for seq_id, _, tokens, _ in event.writes:
            if seq_id in running and len(tokens) != after.scheduled.get(seq_id):
                yield f"{seq_id} wrote {len(tokens)} tokens, and was scheduled {after.scheduled.get(seq_id, 0)}"


def request_tokens(before: Snapshot, event: Event, after: Snapshot) -> Iterator[str]:
    """The cached tokens of a request's sequence are its prompt and outputs, from the first on. Behind them there may be
    drafts that are not verified yet."""
    for name in (*after.running, *after.swapped):
        request = after.requests[name]
        for seq_id, output in request.outputs.items():
            verified = after.verified(seq_id) if seq_id in after.tokens else ()
            known = (*request.prompt, *output)
            # Accepted drafts become outputs a few events later.
            settled = isinstance(event, Written | StepStarted | TokensSampled)
            if verified[: len(known)] != known[: len(verified)] or (settled and len(verified) > len(known)):
                yield f"{seq_id} has other tokens in the cache than its request"
