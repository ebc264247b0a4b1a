"""How the events of sliding windows change the state."""

from collections.abc import Callable
from typing import Any

from pagedviz.engine.log.events.base import Event
from pagedviz.engine.log.events.windows import BlockOutOfWindow, NullBlockTaken, PrefixSkipped
from pagedviz.engine.log.replay.base import counted, entry, removed, returned, row_changed, with_
from pagedviz.engine.log.snapshot import Snapshot


def _null_block_taken(s: Snapshot, e: NullBlockTaken) -> dict[str, Any]:
    return {"null_block": e.block, "free_blocks": removed(s.free_blocks, e.block)}


def _block_out_of_window(s: Snapshot, e: BlockOutOfWindow) -> dict[str, Any]:
    row = entry(s.tables(e.group or 0)[e.seq_id], e.logical_block, e.null_block)
    return {
        **row_changed(s, e.seq_id, e.group, row),
        "ref_counts": counted(s.ref_counts, e.block, e.ref_count),
        "free_blocks": returned(s.free_blocks, e.block, e.queue_index),
    }


def _prefix_skipped(s: Snapshot, e: PrefixSkipped) -> dict[str, Any]:
    skipped = row_changed(s, e.seq_id, e.group, (e.null_block,) * e.num_blocks)
    if e.group:
        return skipped
    return {
        **skipped,
        "host_tables": with_(s.host_tables, **{e.seq_id: (None,) * e.num_blocks}),
        "tokens": with_(s.tokens, **{e.seq_id: s.tokens[e.seq_id] + e.tokens}),
    }


CHANGES: dict[type[Event], Callable[[Snapshot, Any], dict[str, Any]]] = {
    NullBlockTaken: _null_block_taken,
    BlockOutOfWindow: _block_out_of_window,
    PrefixSkipped: _prefix_skipped,
}
