"""The formulas of events of requests."""

import itertools
from collections import Counter
from functools import partial

from pagedviz.engine.log.events.base import Event, Token
from pagedviz.engine.log.events.requests import (
    BeamsChosen,
    RequestAborted,
    RequestAdmitted,
    RequestDropped,
    RequestFinished,
    RequestForked,
    RequestPreempted,
    RequestScheduled,
    RequestSubmitted,
    RequestSwappedIn,
    RequestWaits,
    StepStarted,
    TokensSampled,
)
from pagedviz.engine.log.snapshot import RequestState, Snapshot
from pagedviz.scenario.settings import CacheConfig


def lines(cache: CacheConfig, before: Snapshot, event: Event, after: Snapshot) -> list[str]:
    """Empty for any other event."""
    size = cache.block_size
    match event:
        case RequestSubmitted():
            most, several = len(event.tokens) + event.num_tokens - 1, max(event.samples, event.beams)
            each = "" if several == 1 else f" of each of {several}"
            return [
                f"slots{each} at most = {len(event.tokens)} + {event.num_tokens} − 1 = {most}",
                f"blocks{each} at most = ceil({most} / {size}) = {-(-most // size)}",
                f"waiting = {_queue(after.waiting)}",
            ]
        case StepStarted():
            return [
                f"budget = {event.token_budget} tokens, {cache.scheduler.max_num_seqs} sequences",
                f"running = {_queue(after.running)}",
                f"waiting = {_queue(after.waiting)}",
            ]
        case RequestAdmitted() | RequestSwappedIn():
            seats = sum(after.requests[name].width for name in after.running)
            return [
                f"running = {_queue(after.running)}",
                f"{seats} of at most {cache.scheduler.max_num_seqs} sequences",
            ]
        case RequestScheduled():
            request, computed = after.requests[after.request_of(event.seq_id)], after.seq_len(event.seq_id)
            known = len(request.prompt) + len(request.outputs[event.seq_id])
            drafts, budget = len(after.drafted.get(event.seq_id, ())), event.budget_left + event.num_tokens
            given = f"{event.num_tokens - drafts} + {drafts} = {event.num_tokens}" if drafts else f"{event.num_tokens}"
            return [
                f"known = {known}, computed = {computed}" + (f", drafts = {drafts}" if drafts else ""),
                f"scheduled = {given}",
                f"budget = {budget} − {event.num_tokens} = {event.budget_left}",
            ]
        case RequestWaits():
            return [f"free = {len(after.free_blocks)} blocks", f"waiting = {_queue(after.waiting)}"]
        case RequestPreempted():
            named = _named(before, before.requests[event.seq_id])
            alone = sum(before.ref_counts[block] == times for block, times in named.items())
            return [f"blocks = {len(named)}, of which it alone names {alone}", f"tokens computed = {event.num_tokens}"]
        case RequestDropped():
            return [f"tokens to compute again = {event.num_tokens}", f"waiting = {_queue(after.waiting)}"]
        case TokensSampled():
            return [
                "outputs",
                *itertools.starmap(partial(_sampled, after), zip(event.seq_ids, event.tokens, strict=True)),
            ]
        case RequestForked():
            num_tokens = len(after.requests[event.seq_id].prompt)
            return [
                f"sequences = {len(event.seq_ids)}",
                f"prompt's blocks = ceil({num_tokens} / {size}) = {-(-num_tokens // size)}",
            ]
        case BeamsChosen():
            return ["score = parent's score + log p", *_scores(before, event)]
        case RequestFinished() | RequestAborted():
            request = after.requests[event.seq_id]
            return [f"outputs = {len(request.output)} of {request.num_tokens}", f"running = {_queue(after.running)}"]
    return []


def _named(state: Snapshot, request: RequestState) -> Counter[int]:
    """The device blocks that a request's tables name, and how often each; without the null block."""
    rows = [tables.get(seq_id, ()) for tables in state.all_tables for seq_id in request.outputs]
    return Counter(block for row in rows for block in row if block is not None and block != state.null_block)


def _sampled(after: Snapshot, seq_id: str, tokens: tuple[Token, ...]) -> str:
    """How many outputs a sequence has, and how many of them this step gave."""
    request = after.requests[after.request_of(seq_id)]
    drafts = f", {len(tokens) - 1} accepted and 1 new" if len(tokens) > 1 else ""
    return f"{seq_id}: {len(request.outputs[seq_id])} of {request.num_tokens}{drafts}"


def _scores(before: Snapshot, event: BeamsChosen) -> list[str]:
    """A sum for each beam. The added number is rounded so that the sum is right in the shown digits."""
    scores = before.requests[event.seq_id].scores
    lines = []
    for seq_id, parent, token, score in zip(event.seq_ids, event.parents, event.tokens, event.scores, strict=True):
        total, start = round(score, 3), round(scores.get(parent, 0.0), 3)
        lines.append(f"{seq_id}, “{token}” behind {parent}: {_signed(start)} − {start - total:.3f} = {_signed(total)}")
    return lines


def _signed(score: float) -> str:
    return f"{score:.3f}".replace("-", "−")


def _queue(names: tuple[str, ...]) -> str:
    return f"[{', '.join(names[:8])}{', …' if len(names) > 8 else ''}]"
