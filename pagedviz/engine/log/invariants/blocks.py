"""What must hold for blocks, tables and hashes after every event."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from pagedviz.engine.log.events.base import Event, OperationRefused
from pagedviz.engine.log.events.blocks import (
    BlockAllocated,
    BlockCopied,
    BlockHit,
    BlockShared,
    SequenceForked,
    TokenWritten,
    Written,
)
from pagedviz.engine.log.events.requests import RequestSubmitted, StepStarted
from pagedviz.engine.log.events.transfers import BlockReloaded, BlockSpilled
from pagedviz.engine.log.replay.blocks import tokens_up_to
from pagedviz.engine.log.snapshot import Snapshot, TableRow


def one_state(before: Snapshot, event: Event, after: Snapshot) -> Iterator[str]:
    """Every block is in exactly one state: null, free, or in use. The counts add up to the pool, device and host."""
    null = () if after.null_block is None else (after.null_block,)
    yield from _one_state("device", after.num_blocks, null, after.free_blocks, set(after.ref_counts))
    yield from _one_state("host", after.host_blocks, (), after.host_free_blocks, set(after.host_ref_counts))


def _one_state(
    where: str, num_blocks: int, null: tuple[int, ...], queue: tuple[int, ...], in_use: set[int]
) -> Iterator[str]:
    times = Counter(queue) + Counter(in_use) + Counter(null)
    for block in range(num_blocks):
        if times[block] != 1:
            yield f"{where} block {block} is in {times[block]} states, not in one"
    for block in times.keys() - set(range(num_blocks)):
        yield f"{where} block {block} is outside the pool of {num_blocks}"


def ref_count(before: Snapshot, event: Event, after: Snapshot) -> Iterator[str]:
    """`ref_count` is the number of table entries that name a block, plus its pins."""
    rows = [row for tables in after.all_tables for row in tables.values()]
    yield from _ref_count("device", rows, after.pinned, after.ref_counts, after.null_block)
    yield from _ref_count("host", after.host_tables.values(), (), after.host_ref_counts, None)


def _ref_count(
    where: str, rows: Iterable[TableRow], pinned: tuple[int, ...], counts: Mapping[int, int], null: int | None
) -> Iterator[str]:
    # Entries out of the window name the null block, which has no ref_count.
    named = Counter(block for row in rows for block in row if block not in (None, null)) + Counter(pinned)
    for block in sorted(block for block in named.keys() | counts.keys() if block is not None):
        count = counts.get(block, 0)
        if named[block] != count:
            yield f"{where} block {block} has ref_count {count}, and {named[block]} entries or pins name it"


def once_per_table(before: Snapshot, event: Event, after: Snapshot) -> Iterator[str]:
    """A block occurs at most once in one table, and every entry is in exactly one memory."""
    for tables in (*after.all_tables, after.host_tables):
        null = None if tables is after.host_tables else after.null_block
        for seq_id, row in tables.items():
            for block, times in Counter(b for b in row if b not in (None, null)).items():
                if times > 1:
                    yield f"{seq_id} names block {block} {times} times"
    for seq_id, row in after.block_tables.items():
        host_row = after.host_tables[seq_id]
        for j, places in enumerate(zip(row, host_row, strict=True)):
            if places.count(None) != 1:
                yield f"{seq_id}'s logical block {j} is in {2 - places.count(None)} memories, not in one"


def write_alone(before: Snapshot, event: Event, after: Snapshot) -> Iterator[str]:
    """A launch writes a slot once, right behind the last filled one. Either only one table names its block, which has
    no hash; or the block got its hash for this launch, and the tokens of the hash are written."""
    if not isinstance(event, Written):
        return
    size = after.block_size
    written: Counter[int] = Counter()
    for seq_id, position, tokens, slots in event.writes:
        for p, token, slot in zip(range(position, position + len(slots)), tokens, slots, strict=False):
            if slot_of(after.block_tables.get(seq_id, ()), p, size) != slot:
                yield f"{seq_id}'s position {p} does not map to slot {slot}"
            # The event has the slots of group 0. Those of the other groups follow from their tables.
            others = [slot_of(tables.get(seq_id, ()), p, size) for tables in after.group_tables]
            for own in (slot, *others):
                block, offset = divmod(own, size)
                count, cached = after.ref_counts.get(block, 0), before.cached.get(block)
                if cached is None and count != 1:
                    yield f"{seq_id} wrote slot {own} of block {block}, whose ref_count is {count}"
                if cached is not None and (
                    cached.tokens[offset : offset + 1] != (token,) or p < before.seq_len(seq_id)
                ):
                    yield f"{seq_id} wrote slot {own} of block {block}, which is cached"
        if len(slots) != len(tokens):
            yield f"{seq_id} wrote {len(tokens)} tokens into {len(slots)} slots"
        if position != len(tokens_up_to(before, seq_id, position)):
            yield f"{seq_id} wrote position {position}, which is not the one after its last"
        written.update(slots)
    if isinstance(event, TokenWritten) and (event.block, event.offset) != divmod(event.slot, size):
        yield f"{event.seq_id}'s slot {event.slot} is not offset {event.offset} of block {event.block}"
    for slot, times in written.items():
        if times > 1:
            yield f"slot {slot} was written {times} times in one launch"


def slot_of(row: TableRow, position: int, size: int) -> int:
    """The slot of a position by a table; -1 if the table has no device block for it."""
    block = row[position // size] if position // size < len(row) else None
    return -1 if block is None else block * size + position % size


def table_covers(before: Snapshot, event: Event, after: Snapshot) -> Iterator[str]:
    """A table has an entry for every token: len(table) >= ceil(seq_len / block_size)."""
    for tables in after.all_tables if isinstance(event, Written) else (after.block_tables,):
        for seq_id, row in tables.items():
            needed = -(-after.seq_len(seq_id) // after.block_size)
            if len(row) < needed:
                yield f"{seq_id} has {after.seq_len(seq_id)} tokens and {len(row)} table entries, and needs {needed}"


def lazy_fork(before: Snapshot, event: Event, after: Snapshot) -> Iterator[str]:
    """A fork takes no block. A spill or reload does not change the number of distinct blocks in use."""
    if isinstance(event, SequenceForked | BlockShared) and before.free_blocks != after.free_blocks:
        yield f"{event.kind} changed the free queue"
    if isinstance(event, BlockSpilled | BlockReloaded):
        blocks_before = len(before.ref_counts) + len(before.host_ref_counts)
        blocks_after = len(after.ref_counts) + len(after.host_ref_counts)
        if blocks_before != blocks_after:
            yield f"{event.kind} turned {blocks_before} blocks in use into {blocks_after}"


def cached_content(before: Snapshot, event: Event, after: Snapshot) -> Iterator[str]:
    """A block with a hash holds one token in each slot. Each sequence that names it has these tokens there, behind the
    same parent. Only a first block has a salt. A block that is handed out again has lost its old hash."""
    size = after.block_size
    for block, entry in after.cached.items():
        if not 0 <= block < after.num_blocks or block == after.null_block:
            yield f"cached block {block} is not in the pool"
        if len(entry.tokens) != size:
            yield f"cached block {block} holds {len(entry.tokens)} tokens, not {size}"
        if entry.parent_hash is not None and entry.salt is not None:
            yield f"cached block {block} has a salt, and is not the first of its sequence"
    for group, tables in enumerate(after.all_tables):
        for seq_id, row in tables.items():
            yield from _cached_content(event, after, seq_id, row, group)
    handed_out = {BlockAllocated: "block", BlockCopied: "target", BlockReloaded: "block"}.get(type(event))
    if handed_out and getattr(event, handed_out) in after.cached:
        yield f"block {getattr(event, handed_out)} was handed out again and still has a hash"


def _cached_content(event: Event, after: Snapshot, seq_id: str, row: TableRow, group: int) -> Iterator[str]:
    size, verified = after.block_size, after.verified(seq_id)
    entries = [None if block is None else after.cached.get(block) for block in row]
    for j, (named, held) in enumerate(zip(row, entries, strict=True)):
        if held is None:
            continue
        previous = entries[j - 1] if j else None
        own = verified[j * size : (j + 1) * size]
        if held.group != group:
            yield f"{seq_id}'s logical block {j} in group {group} is block {named}, cached in group {held.group}"
        if held.tokens[: len(own)] != own:
            yield f"{seq_id}'s logical block {j} is cached block {named}, which holds other tokens"
        if len(own) < size and isinstance(event, Written | StepStarted | RequestSubmitted | OperationRefused):
            yield f"{seq_id}'s logical block {j} is cached block {named}, which no launch has filled"
        if (held.parent_hash is None) != (j == 0) or (previous and previous.block_hash != held.parent_hash):
            yield f"{seq_id}'s logical block {j} is cached block {named}, which belongs behind another prefix"
        if j == 0 and held.salt != after.salts.get(seq_id):
            yield f"{seq_id}'s first block is cached block {named}, which has another salt"


def hit_is_prefix(before: Snapshot, event: Event, after: Snapshot) -> Iterator[str]:
    """A hit names a cached block, follows on the hits before it from block 0 on, and leaves one token to compute."""
    if not isinstance(event, BlockHit):
        return
    end = (event.logical_block + 1) * after.block_size
    if event.block not in before.cached:
        yield f"{event.seq_id} hit block {event.block}, which has no hash"
    held, group = len(before.tokens.get(event.seq_id, ())), event.group or 0
    row = before.tables(group).get(event.seq_id, ())
    if len(row) != event.logical_block or (
        event.computed and not group and held != event.logical_block * after.block_size
    ):
        yield f"{event.seq_id} hit block {event.block}, which is not right behind its last token"
    if any(block not in before.cached and block != before.null_block for block in row):
        yield f"{event.seq_id} hit block {event.block} behind a block that was not hit"
    if end >= event.num_tokens:
        yield f"{event.seq_id} hit {end} of its {event.num_tokens} tokens, and one at least must be computed"
