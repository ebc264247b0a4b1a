"""The event log alone rebuilds every state: `apply` is a pure function of a snapshot and an event."""

import dataclasses

from pagedviz.engine.log.events.base import Event
from pagedviz.engine.log.replay import blocks, drafts, requests, transfers, windows
from pagedviz.engine.log.snapshot import Snapshot

CHANGES = {
    kind: change for family in (blocks, windows, drafts, requests, transfers) for kind, change in family.CHANGES.items()
}


def apply(before: Snapshot, event: Event) -> Snapshot:
    """The state after `event`. `before` is not changed."""
    change = CHANGES.get(type(event))
    return dataclasses.replace(before, **change(before, event)) if change else before
