"""What must hold after every event. Each invariant is one function, and yields one sentence for each breach."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from pagedviz.engine.log import host_invariants, replay
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
from pagedviz.engine.log.events.drafts import DraftsVerified
from pagedviz.engine.log.events.requests import RequestSubmitted, StepStarted, TokensSampled
from pagedviz.engine.log.events.transfers import BlockLoaded, BlockReloaded, BlockSpilled, TierEvent, TierStoreBegun
from pagedviz.engine.log.events.windows import BlockOutOfWindow
from pagedviz.engine.log.replay.blocks import tokens_up_to
from pagedviz.engine.log.snapshot import Snapshot, TableRow
from pagedviz.engine.policies.windows import below_window

Invariant = Callable[[Snapshot, Event, Snapshot], Iterator[str]]


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
            if _slot(after.block_tables.get(seq_id, ()), p, size) != slot:
                yield f"{seq_id}'s position {p} does not map to slot {slot}"
            # The event has the slots of group 0. Those of the other groups follow from their tables.
            others = [_slot(tables.get(seq_id, ()), p, size) for tables in after.group_tables]
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


def _slot(row: TableRow, position: int, size: int) -> int:
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


def in_window(before: Snapshot, event: Event, after: Snapshot) -> Iterator[str]:
    """An entry names the null block only below the window of its group, where no later token reads."""
    if not isinstance(event, Written | BlockOutOfWindow | DraftsVerified):
        return
    for window, tables in zip(after.windows, after.all_tables, strict=True):
        for seq_id, row in tables.items():
            end = below_window(len(after.verified(seq_id)), window, after.block_size)
            if after.null_block is not None and after.null_block in row[end:]:
                yield f"{seq_id}'s logical block {row.index(after.null_block, end)} is null, and later tokens see it"


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


def queues(before: Snapshot, event: Event, after: Snapshot) -> Iterator[str]:
    """A request is in one queue at most. A running or swapped request has a block table. A request that waits, has
    finished or was aborted has none."""
    for seq_id, times in Counter((*after.waiting, *after.running, *after.swapped)).items():
        if times > 1:
            yield f"{seq_id} is in the queues {times} times"
        if seq_id not in after.requests:
            yield f"{seq_id} is in a queue, and is not a request"
    if not isinstance(event, Written | StepStarted | RequestSubmitted | TokensSampled):
        return  # in the middle of a change of several events
    for seq_id, request in after.requests.items():
        owns = any(own in after.block_tables for own in request.outputs)
        lives = seq_id in after.running or seq_id in after.swapped
        if owns != lives:
            yield f"{seq_id} {'owns a block table' if owns else 'has none'}, and {'runs' if lives else 'does not run'}"


def within_budget(before: Snapshot, event: Event, after: Snapshot) -> Iterator[str]:
    """A launch computes no more than the token budget, only for running requests, and exactly what was scheduled."""
    if sum(after.scheduled.values()) > after.token_budget:
        yield f"{sum(after.scheduled.values())} tokens are scheduled, and the budget is {after.token_budget}"
    running = {own for seq_id in after.running for own in after.requests[seq_id].outputs}
    for seq_id in after.scheduled.keys() - running:
        yield f"{seq_id} is scheduled, and does not run"
    if isinstance(event, Written):
        for seq_id, _, tokens, _ in event.writes:
            if seq_id in running and len(tokens) != after.scheduled.get(seq_id):
                yield f"{seq_id} wrote {len(tokens)} tokens, and was scheduled {after.scheduled.get(seq_id, 0)}"


def request_tokens(before: Snapshot, event: Event, after: Snapshot) -> Iterator[str]:
    """The cached tokens of a request's sequence are its prompt and outputs, from the first on. Behind them there may be
    drafts that are not verified yet."""
    for name in (*after.running, *after.swapped):
        request = after.requests[name]
        for seq_id, output in request.outputs.items():
            verified = after.verified(seq_id) if seq_id in after.tokens else ()
            known = (*request.prompt, *output)
            # Accepted drafts become outputs a few events later.
            settled = isinstance(event, Written | StepStarted | TokensSampled)
            if verified[: len(known)] != known[: len(verified)] or (settled and len(verified) > len(known)):
                yield f"{seq_id} has other tokens in the cache than its request"


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
        slots = [_slot(t[event.seq_id], p, after.block_size) for t in before.all_tables for p in rolled_back]
        if tuple(slots) != event.slots or event.num_tokens != rolled_back.start:
            yield f"{event.seq_id} rolled back other slots than those of its rejected drafts"


def host_tier(before: Snapshot, event: Event, after: Snapshot) -> Iterator[str]:
    """The tier's own rules hold, and every device block of an unfinished transfer has a pin."""
    if after.tier is None:
        return
    for block in sorted(after.tier.held_device_blocks - set(after.pinned)):
        yield f"device block {block} is in a transfer, and has no pin"
    if isinstance(event, TierEvent) and not isinstance(event, BlockLoaded) and before.tier is not None:
        yield from host_invariants.broken(before.tier, event, after.tier)
    if isinstance(event, TierStoreBegun):
        for key, block in zip(event.block_hashes, event.device_blocks, strict=True):
            if block not in before.cached or before.cached[block].block_hash != str(key)[:8]:
                yield f"{str(key)[:8]} is stored from device block {block}, which does not hold it"


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
    one_state,
    ref_count,
    once_per_table,
    write_alone,
    table_covers,
    lazy_fork,
    cached_content,
    hit_is_prefix,
    queues,
    within_budget,
    request_tokens,
    in_window,
    drafts,
    host_tier,
    refused_changes_nothing,
    replay_agrees,
)


def broken(before: Snapshot, event: Event, after: Snapshot) -> list[str]:
    """Each broken invariant as "name: what is wrong, with ids". Empty when all hold."""
    return [
        f"{invariant.__name__}: {sentence}" for invariant in INVARIANTS for sentence in invariant(before, event, after)
    ]
