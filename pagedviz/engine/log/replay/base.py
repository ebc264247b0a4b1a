"""Copies of mappings, queues and tables with one thing changed. The arguments are not changed."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pagedviz.engine.log.snapshot import Snapshot, TableRow

K = TypeVar("K")
V = TypeVar("V")


def with_(mapping: Mapping[K, V], /, **changes: V) -> dict[Any, V]:
    return {**mapping, **changes}


def without(mapping: Mapping[K, V], key: K) -> dict[K, V]:
    return {k: v for k, v in mapping.items() if k != key}


def counted(counts: Mapping[int, int], block: int, ref_count: int) -> dict[int, int]:
    """The counts with one block's count changed. A block that is not in use is not listed."""
    changed = {b: count for b, count in counts.items() if b != block}
    if ref_count:
        changed[block] = ref_count
    return dict(sorted(changed.items()))


def inserted(queue: tuple[int, ...], block: int, queue_index: int) -> tuple[int, ...]:
    return (*queue[:queue_index], block, *queue[queue_index:])


def returned(queue: tuple[int, ...], block: int, queue_index: int | None) -> tuple[int, ...]:
    """The queue with a block that no table names any more; the same queue if `queue_index` is None."""
    return queue if queue_index is None else inserted(queue, block, queue_index)


def removed(queue: tuple[int, ...], block: int) -> tuple[int, ...]:
    """The queue without a block. The block need not be in it."""
    return tuple(other for other in queue if other != block)


def entry(row: TableRow, j: int, block: int | None) -> TableRow:
    """A row of a table with its entry j replaced."""
    return (*row[:j], block, *row[j + 1 :])


def in_group(s: Snapshot, group: int | None, tables: Mapping[str, TableRow]) -> dict[str, Any]:
    """The tables of one group replaced."""
    if not group:
        return {"block_tables": tables}
    return {"group_tables": (*s.group_tables[: group - 1], tables, *s.group_tables[group:])}


def row_changed(s: Snapshot, seq_id: str, group: int | None, row: TableRow) -> dict[str, Any]:
    """One sequence's row of one group's table replaced."""
    return in_group(s, group, with_(s.tables(group or 0), **{seq_id: row}))
