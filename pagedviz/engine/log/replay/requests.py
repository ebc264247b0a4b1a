"""How the events of requests change the state."""

from collections.abc import Callable
from typing import Any

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
    StepStarted,
    TokensSampled,
)
from pagedviz.engine.log.replay.base import with_
from pagedviz.engine.log.snapshot import RequestState, Snapshot


def _request_submitted(s: Snapshot, e: RequestSubmitted) -> dict[str, Any]:
    several = max(e.samples, e.beams) > 1
    outputs: dict[str, tuple[Token, ...]] = {f"{e.seq_id}.1" if several else e.seq_id: ()}
    request = RequestState(e.tokens, outputs, e.num_tokens, e.priority, e.salt, e.samples, e.beams)
    waiting = (*s.waiting[: e.queue_index], e.seq_id, *s.waiting[e.queue_index :])
    return {"requests": with_(s.requests, **{e.seq_id: request}), "waiting": waiting}


def _step_started(s: Snapshot, e: StepStarted) -> dict[str, Any]:
    return {"engine_step": e.engine_step, "token_budget": e.token_budget, "scheduled": {}}


def _request_scheduled(s: Snapshot, e: RequestScheduled) -> dict[str, Any]:
    return {"scheduled": with_(s.scheduled, **{e.seq_id: e.num_tokens})}


def _leave(s: Snapshot, seq_id: str) -> dict[str, Any]:
    """The state with a request in no queue and in no launch."""
    queues = {name: tuple(x for x in getattr(s, name) if x != seq_id) for name in ("waiting", "running", "swapped")}
    outputs = s.requests[seq_id].outputs
    return {**queues, "scheduled": {other: count for other, count in s.scheduled.items() if other not in outputs}}


def _to_running(s: Snapshot, e: RequestAdmitted | RequestSwappedIn) -> dict[str, Any]:
    return {**_leave(s, e.seq_id), "running": (*s.running, e.seq_id)}


def _request_preempted(s: Snapshot, e: RequestPreempted) -> dict[str, Any]:
    if e.how == "swap":
        return {**_leave(s, e.seq_id), "swapped": (*s.swapped, e.seq_id)}
    return _to_waiting(s, e)


def _to_waiting(s: Snapshot, e: RequestPreempted | RequestDropped) -> dict[str, Any]:
    return {**_leave(s, e.seq_id), "waiting": (e.seq_id, *s.waiting)}


def _tokens_sampled(s: Snapshot, e: TokensSampled) -> dict[str, Any]:
    grown = dict(s.requests)
    for seq_id, tokens in zip(e.seq_ids, e.tokens, strict=True):
        name = s.request_of(seq_id)
        outputs = grown[name].outputs
        grown[name] = grown[name]._replace(outputs={**outputs, seq_id: outputs[seq_id] + tokens})
    return {"requests": grown}


def _request_forked(s: Snapshot, e: RequestForked) -> dict[str, Any]:
    request = s.requests[e.seq_id]
    outputs = {seq_id: request.outputs.get(seq_id, request.output) for seq_id in e.seq_ids}
    return {"requests": with_(s.requests, **{e.seq_id: request._replace(outputs=outputs)})}


def _beams_chosen(s: Snapshot, e: BeamsChosen) -> dict[str, Any]:
    request, chosen = s.requests[e.seq_id], zip(e.seq_ids, e.parents, e.tokens, strict=True)
    outputs = {seq_id: (*request.outputs[parent], token) for seq_id, parent, token in chosen}
    scores = dict(zip(e.seq_ids, e.scores, strict=True))
    return {
        "requests": with_(s.requests, **{e.seq_id: request._replace(outputs=outputs, scores=scores)}),
        "scheduled": {seq_id: count for seq_id, count in s.scheduled.items() if seq_id not in e.pruned},
    }


def _request_gone(s: Snapshot, e: RequestFinished | RequestAborted) -> dict[str, Any]:
    return _leave(s, e.seq_id)


CHANGES: dict[type[Event], Callable[[Snapshot, Any], dict[str, Any]]] = {
    RequestSubmitted: _request_submitted,
    StepStarted: _step_started,
    RequestAdmitted: _to_running,
    RequestScheduled: _request_scheduled,
    RequestPreempted: _request_preempted,
    RequestSwappedIn: _to_running,
    RequestDropped: _to_waiting,
    TokensSampled: _tokens_sampled,
    RequestForked: _request_forked,
    BeamsChosen: _beams_chosen,
    RequestFinished: _request_gone,
    RequestAborted: _request_gone,
}
