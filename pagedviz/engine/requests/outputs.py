"""What becomes of a launch's outputs: requests fork, take their tokens, keep their likeliest beams, and finish."""

from collections.abc import Mapping, Sequence

from pagedviz.engine.log.events.base import Token
from pagedviz.engine.log.events.requests import BeamsChosen, RequestForked, TokensSampled
from pagedviz.engine.log.text import sentences
from pagedviz.engine.requests import beams
from pagedviz.engine.requests.queues import RequestQueues


def due(queues: RequestQueues) -> list[str]:
    """The sequences that have just computed their newest known token. The model has an output for each of them."""
    return [
        seq_id
        for name in queues.running
        for seq_id in queues.live(queues.requests[name])
        if queues.requests[name].first in queues.scheduled and not queues.left(queues.requests[name])
    ]


def fork(queues: RequestQueues) -> None:
    """Fork each request of several sequences when its prompt has just been computed."""
    for name in list(queues.running):
        request = queues.requests[name]
        computed = request.first in queues.scheduled and queues.computed(request) == len(request.prompt)
        if request.width == 1 or request.forked or not computed:
            continue
        request.forked = True
        if len(request.outputs) < request.samples:
            more = {request.new_name(): list[Token]() for _ in range(request.samples - 1)}
            request.outputs |= more
        if len(request.outputs) > 1:
            queues.report(RequestForked(name, tuple(request.outputs)))
        for seq_id in list(request.outputs)[1:]:
            queues.manager.fork(request.first, seq_id, managed=True)


def sampled(queues: RequestQueues, outputs: Mapping[str, Sequence[Token]]) -> None:
    """Take the outputs of a launch: the accepted drafts of each sequence, and one more token. A request that has
    all of its outputs is finished, and its blocks are freed."""
    if not outputs:
        return
    for seq_id, tokens in outputs.items():
        if queues.manager.sequences[seq_id].unverified:
            queues.manager.verify(seq_id, len(tokens) - 1)
    for seq_id, tokens in outputs.items():
        queues.request_of(seq_id).outputs[seq_id] += tokens
    said = sentences.named([f"{seq_id} says “{' '.join(map(str, tokens))}”" for seq_id, tokens in outputs.items()])
    all_tokens = tuple(map(tuple, outputs.values()))
    queues.report(TokensSampled(seq_ids=tuple(outputs), tokens=all_tokens, said=said))
    _finish_complete(queues, outputs)


def expand(queues: RequestQueues, name: str, candidates: Mapping[str, beams.Candidates]) -> None:
    """Keep the likeliest continuations of a request's beams. A beam with several of them is forked; a beam with
    none is freed."""
    request = queues.requests[name]
    chosen, outputs, scores = beams.likeliest(request.scores, candidates, request.beams), {}, {}
    for beam in chosen:
        seq_id = beam.parent if beam.parent not in outputs else request.new_name()
        outputs[seq_id] = [*request.outputs[beam.parent], beam.token]
        scores[seq_id] = beam.score
    pruned = [seq_id for seq_id in request.outputs if seq_id not in outputs]
    request.outputs, request.scores = outputs, scores
    for seq_id in pruned:
        queues.scheduled.pop(seq_id)
    said = sentences.named([f"{seq_id} “{beam.token}”" for seq_id, beam in zip(outputs, chosen, strict=True)])
    parents, tokens, sums = zip(*chosen, strict=True)
    queues.report(
        BeamsChosen(
            seq_id=name,
            seq_ids=tuple(outputs),
            parents=parents,
            tokens=tokens,
            scores=sums,
            pruned=tuple(pruned),
            said=said,
        )
    )
    for seq_id, parent in zip(outputs, parents, strict=True):
        if seq_id != parent:
            queues.manager.fork(parent, seq_id, managed=True)
    for seq_id in pruned:
        queues.manager.free(seq_id)
    request.forked = True
    _finish_complete(queues, outputs)


def _finish_complete(queues: RequestQueues, seq_ids: Mapping[str, object]) -> None:
    for request in {id(r): r for r in map(queues.request_of, seq_ids)}.values():
        if not request.outputs_left:
            queues.finish(request)
