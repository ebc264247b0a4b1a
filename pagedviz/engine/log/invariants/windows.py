"""What must hold for sliding windows after every event."""

from collections.abc import Iterator

from pagedviz.engine.log.events.base import Event
from pagedviz.engine.log.events.blocks import (
    Written,
)
from pagedviz.engine.log.events.drafts import DraftsVerified
from pagedviz.engine.log.events.windows import BlockOutOfWindow
from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.engine.policies.windows import below_window


def in_window(before: Snapshot, event: Event, after: Snapshot) -> Iterator[str]:
    """An entry names the null block only below the window of its group, where no later token reads."""
    if not isinstance(event, Written | BlockOutOfWindow | DraftsVerified):
        return
    for window, tables in zip(after.windows, after.all_tables, strict=True):
        for seq_id, row in tables.items():
            end = below_window(len(after.verified(seq_id)), window, after.block_size)
            if after.null_block is not None and after.null_block in row[end:]:
                yield f"{seq_id}'s logical block {row.index(after.null_block, end)} is null, and later tokens see it"
