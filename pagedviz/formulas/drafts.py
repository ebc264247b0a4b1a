"""The formulas of events of drafted tokens."""

from pagedviz.engine.log.events.base import Event, Write
from pagedviz.engine.log.events.drafts import DraftsDropped, DraftsVerified, TokensDrafted
from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.engine.log.text.sentences import count
from pagedviz.scenario.settings import CacheConfig


def lines(cache: CacheConfig, before: Snapshot, event: Event, after: Snapshot) -> list[str]:
    """Empty for any other event."""
    match event:
        case TokensDrafted():
            size, seq_len, drafts = cache.block_size, event.position - 1, len(event.tokens)
            sure = [f"confidence = {', '.join(f'{c:.2f}' for c in event.confidences)}"] if event.confidences else []
            end = seq_len + 1 + drafts
            return [
                *sure,
                f"slots = 1 + {drafts} = {1 + drafts}",
                f"seq_len = {seq_len} + 1 + {drafts} = {end}",
                f"blocks = ceil({end} / {size}) = {-(-end // size)}",
            ]
        case DraftsVerified():
            accepted, rejected = len(event.accepted), len(event.rejected)
            size, row = cache.block_size, after.block_tables[event.seq_id]
            needed = -(-event.num_tokens // size)
            return [
                f"accepted = {accepted} of {count(accepted + rejected, 'draft')}",
                f"blocks = ceil({event.num_tokens} / {size}) = {needed} of {len(row)}",
                f"seq_len = {event.num_tokens + rejected} − {rejected} = {event.num_tokens}",
            ]
        case DraftsDropped():
            drafted, left = (len(state.drafted.get(event.seq_id, ())) for state in (before, after))
            return [f"drafts = {drafted} − {len(event.tokens)} = {left}"]
    return []


def of_write(write: Write, after: Snapshot) -> list[str]:
    """How many of a sequence's written tokens are drafts. Empty if none is."""
    drafts = after.unverified.get(write.seq_id, 0)
    return [f"{write.seq_id}: {count(len(write.tokens), 'token')}, the last {count(drafts, 'draft')}"] if drafts else []
