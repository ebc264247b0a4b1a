"""The numbers behind a scheduler's event: lines of plain text, as `formula` gives them for those of the blocks."""

from pagedviz.engine import request_events as events
from pagedviz.engine.events import Event
from pagedviz.engine.snapshot import Snapshot
from pagedviz.scenario import CacheConfig


def lines(cache: CacheConfig, before: Snapshot, event: Event, after: Snapshot) -> list[str]:
    """Empty for any other event."""
    size = cache.block_size
    match event:
        case events.RequestSubmitted():
            most = len(event.tokens) + event.num_tokens - 1
            return [
                f"slots at most = {len(event.tokens)} + {event.num_tokens} − 1 = {most}",
                f"blocks at most = ceil({most} / {size}) = {-(-most // size)}",
                f"waiting = {_queue(after.waiting)}",
            ]
        case events.StepStarted():
            return [
                f"budget = {event.token_budget} tokens, {cache.scheduler.max_num_seqs} requests",
                f"running = {_queue(after.running)}",
                f"waiting = {_queue(after.waiting)}",
            ]
        case events.RequestAdmitted() | events.RequestSwappedIn():
            return [
                f"running = {_queue(after.running)}",
                f"{len(after.running)} of at most {cache.scheduler.max_num_seqs}",
            ]
        case events.RequestScheduled():
            request, computed = after.requests[event.seq_id], after.seq_len(event.seq_id)
            known = len(request.prompt) + len(request.output)
            return [
                f"known = {known}, computed = {computed}",
                f"scheduled = {event.num_tokens}",
                f"budget = {event.budget_left + event.num_tokens} − {event.num_tokens} = {event.budget_left}",
            ]
        case events.RequestWaits():
            return [f"free = {len(after.free_blocks)} blocks", f"waiting = {_queue(after.waiting)}"]
        case events.RequestPreempted():
            row = [block for block in before.block_tables[event.seq_id] if block is not None]
            alone = sum(before.ref_counts[block] == 1 for block in row)
            return [f"blocks = {len(row)}, nobody else names {alone}", f"tokens computed = {event.num_tokens}"]
        case events.RequestDropped():
            return [f"tokens to compute again = {event.num_tokens}", f"waiting = {_queue(after.waiting)}"]
        case events.TokensSampled():
            outputs = [f"{s}: {len(after.requests[s].output)} of {after.requests[s].num_tokens}" for s in event.seq_ids]
            return ["outputs", *outputs]
        case events.RequestFinished() | events.RequestAborted():
            request = after.requests[event.seq_id]
            return [f"outputs = {len(request.output)} of {request.num_tokens}", f"running = {_queue(after.running)}"]
    return []


def _queue(names: tuple[str, ...]) -> str:
    return f"[{', '.join(names[:8])}{', …' if len(names) > 8 else ''}]"
