"""Mappings, queues and tables with one thing changed; what was given is left as it is."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pagedviz.engine.log.snapshot import Row, Snapshot

K = TypeVar("K")
V = TypeVar("V")


def with_(mapping: Mapping[K, V], /, **changes: V) -> dict[Any, V]:
    return {**mapping, **changes}


def without(mapping: Mapping[K, V], key: K) -> dict[K, V]:
    return {k: v for k, v in mapping.items() if k != key}


def counted(counts: Mapping[int, int], block: int, ref_count: int) -> dict[int, int]:
    """The counts with one block's changed. A block in no use is not listed."""
    changed = {b: count for b, count in counts.items() if b != block}
    if ref_count:
        changed[block] = ref_count
    return dict(sorted(changed.items()))


def inserted(queue: tuple[int, ...], block: int, queue_index: int) -> tuple[int, ...]:
    return (*queue[:queue_index], block, *queue[queue_index:])


def returned(queue: tuple[int, ...], block: int, queue_index: int | None) -> tuple[int, ...]:
    """The queue with a block that nobody names any more; as it was where somebody does."""
    return queue if queue_index is None else inserted(queue, block, queue_index)


def removed(queue: tuple[int, ...], block: int) -> tuple[int, ...]:
    """The queue without a block, which may be in use already."""
    return tuple(other for other in queue if other != block)


def entry(row: Row, j: int, block: int | None) -> Row:
    """A table row with its entry j replaced."""
    return (*row[:j], block, *row[j + 1 :])


def in_group(s: Snapshot, group: int | None, tables: Mapping[str, Row]) -> dict[str, Any]:
    """The tables of one group replaced."""
    if not group:
        return {"block_tables": tables}
    return {"group_tables": (*s.group_tables[: group - 1], tables, *s.group_tables[group:])}


def row_changed(s: Snapshot, seq_id: str, group: int | None, row: Row) -> dict[str, Any]:
    """One sequence's row of one group's table replaced."""
    return in_group(s, group, with_(s.tables(group or 0), **{seq_id: row}))
