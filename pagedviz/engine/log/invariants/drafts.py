"""What must hold for drafted tokens after every event."""

from collections.abc import Iterator

from pagedviz.engine.log.events.base import Event
from pagedviz.engine.log.events.drafts import DraftsVerified
from pagedviz.engine.log.invariants.blocks import slot_of
from pagedviz.engine.log.snapshot import Snapshot


def drafts(before: Snapshot, event: Event, after: Snapshot) -> Iterator[str]:
    """Drafts belong to sequences that exist, and a sequence has at least as many tokens as unverified drafts. The
    accepted and rejected drafts are those that were written. Only slots of rejected drafts are rolled back."""
    for seq_id in after.drafted.keys() | after.unverified.keys():
        if after.unverified.get(seq_id, 0) > len(after.tokens.get(seq_id, ())) or seq_id not in after.tokens:
            yield f"{seq_id} has more drafts than tokens"
    if isinstance(event, DraftsVerified):
        num = before.unverified.get(event.seq_id, 0)
        tokens = before.tokens[event.seq_id]
        if (*event.accepted, *event.rejected) != tokens[len(tokens) - num :]:
            yield f"{event.seq_id} verified other drafts than it had written"
        rolled_back = range(len(tokens) - len(event.rejected), len(tokens))
        slots = [slot_of(t[event.seq_id], p, after.block_size) for t in before.all_tables for p in rolled_back]
        if tuple(slots) != event.slots or event.num_tokens != rolled_back.start:
            yield f"{event.seq_id} rolled back other slots than those of its rejected drafts"
