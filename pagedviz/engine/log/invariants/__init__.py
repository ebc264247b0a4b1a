"""What must hold after every event. Each invariant is one function, and yields one sentence for each breach."""

from collections.abc import Callable, Iterator

from pagedviz.engine.log import replay
from pagedviz.engine.log.events.base import Event, OperationRefused
from pagedviz.engine.log.invariants import blocks, drafts, requests, transfers, windows
from pagedviz.engine.log.snapshot import Snapshot

Invariant = Callable[[Snapshot, Event, Snapshot], Iterator[str]]


def refused_changes_nothing(before: Snapshot, event: Event, after: Snapshot) -> Iterator[str]:
    """A refused operation leaves the whole state as it was."""
    if isinstance(event, OperationRefused) and before != after:
        yield f"the refused {event.op} changed the state"


def replay_agrees(before: Snapshot, event: Event, after: Snapshot) -> Iterator[str]:
    """The event alone, applied to the state before, gives the state after: the log is complete."""
    try:
        replayed = replay.apply(before, event)
    except (LookupError, ValueError):
        yield f"{event.kind} cannot be replayed: it names what is not there"
        return
    if replayed != after:
        yield f"replaying {event.kind} gives another state than the manager's"


INVARIANTS: tuple[Invariant, ...] = (
    blocks.one_state,
    blocks.ref_count,
    blocks.once_per_table,
    blocks.write_alone,
    blocks.table_covers,
    blocks.lazy_fork,
    blocks.cached_content,
    blocks.hit_is_prefix,
    requests.queues,
    requests.within_budget,
    requests.request_tokens,
    windows.in_window,
    drafts.drafts,
    transfers.host_tier,
    refused_changes_nothing,
    replay_agrees,
)


def broken(before: Snapshot, event: Event, after: Snapshot) -> list[str]:
    """Each broken invariant as "name: what is wrong, with ids". Empty when all hold."""
    return [
        f"{invariant.__name__}: {sentence}" for invariant in INVARIANTS for sentence in invariant(before, event, after)
    ]
