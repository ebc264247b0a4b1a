"""What must hold in the host tier after every event. Each invariant yields one sentence for each breach."""

from collections import Counter
from collections.abc import Callable, Iterator

from pagedviz.engine.log.events.transfers import TierEvent, TierEvicted, TierStoreFinished
from pagedviz.engine.log.host_snapshot import TierSnapshot
from pagedviz.engine.log.replay import host_tier

TierInvariant = Callable[[TierSnapshot, TierEvent, TierSnapshot], Iterator[str]]


def chunks_add_up(before: TierSnapshot, event: TierEvent, after: TierSnapshot) -> Iterator[str]:
    """Every chunk is free or holds one block."""
    times = Counter([*after.free_chunks, *after.chunks])
    for chunk in sorted({*times, *range(after.num_chunks)}):
        if times[chunk] != 1 or chunk >= after.num_chunks:
            yield f"chunk {chunk} is there {times[chunk]} times, free or in use, and the tier has {after.num_chunks}"


def found_once(before: TierSnapshot, event: TierEvent, after: TierSnapshot) -> Iterator[str]:
    """A hash finds exactly one chunk, and that chunk has not failed."""
    held = Counter(held.block_hash for held in after.chunks.values() if held.state != "failed")
    found = Counter(after.recency)
    for block_hash in {**held, **found}:
        if not held[block_hash] == found[block_hash] == 1:
            yield f"{block_hash} is held {held[block_hash]} times and found {found[block_hash]} times"


def pins_are_loads(before: TierSnapshot, event: TierEvent, after: TierSnapshot) -> Iterator[str]:
    """A chunk has one pin for each unfinished load that reads it. It is pending only while a store fills it."""
    loads, stores = (
        Counter(chunk for transfer in after.transfers.values() if transfer.kind == kind for chunk in transfer.chunks)
        for kind in ("load", "store")
    )
    for chunk, held in after.chunks.items():
        if held.pins != loads[chunk]:
            yield f"chunk {chunk} has {held.pins} pins, and {loads[chunk]} loads read it"
        if stores[chunk] != (held.state == "pending"):
            yield f"chunk {chunk} is {held.state}, and {stores[chunk]} stores fill it"
        if (held.pins > 0) != (held.state in ("loading", "failed")):
            yield f"chunk {chunk} is {held.state} with {held.pins} pins"


def transfers_keep_chunks(before: TierSnapshot, event: TierEvent, after: TierSnapshot) -> Iterator[str]:
    """While a transfer is unfinished, its chunks hold the blocks that it copies."""
    for number, transfer in after.transfers.items():
        for block_hash, chunk in zip(transfer.block_hashes, transfer.chunks, strict=True):
            held = after.chunks.get(chunk)
            if held is None or held.block_hash != block_hash:
                yield f"{transfer.kind} {number} copies {block_hash}, and chunk {chunk} no longer holds it"


def device_blocks_held(before: TierSnapshot, event: TierEvent, after: TierSnapshot) -> Iterator[str]:
    """The held device blocks are those of the unfinished transfers. Each belongs to one transfer."""
    times = Counter(block for transfer in after.transfers.values() for block in transfer.device_blocks)
    for block in sorted({*times, *after.held_device_blocks}):
        if times[block] != 1 or block not in after.held_device_blocks:
            held = "held" if block in after.held_device_blocks else "not held"
            yield f"device block {block} is {held}, and {times[block]} transfers copy it"


def only_idle_evicted(before: TierSnapshot, event: TierEvent, after: TierSnapshot) -> Iterator[str]:
    """An evicted chunk was not being stored or loaded."""
    if isinstance(event, TierEvicted):
        held = before.chunks[event.chunk]
        if held.state != "ready":
            yield f"{event.block_hash} was evicted while it was {held.state}"


def finished_stores_are_hits(before: TierSnapshot, event: TierEvent, after: TierSnapshot) -> Iterator[str]:
    """A block can be loaded only after its store has finished."""
    filled = event.chunks if isinstance(event, TierStoreFinished) else ()
    readable = {chunk for chunk, held in before.chunks.items() if held.state in ("ready", "loading")}
    for chunk, held in after.chunks.items():
        if held.state in ("ready", "loading") and chunk not in readable and chunk not in filled:
            yield f"chunk {chunk} is {held.state}, and no store of it has finished"


def replay_agrees(before: TierSnapshot, event: TierEvent, after: TierSnapshot) -> Iterator[str]:
    """The event alone, applied to the tier before, gives the tier after: the log is complete."""
    if host_tier.apply(before, event) != after:
        yield f"replaying {event.kind} gives another tier"


INVARIANTS: tuple[TierInvariant, ...] = (
    chunks_add_up,
    found_once,
    pins_are_loads,
    transfers_keep_chunks,
    device_blocks_held,
    only_idle_evicted,
    finished_stores_are_hits,
    replay_agrees,
)


def broken(before: TierSnapshot, event: TierEvent, after: TierSnapshot) -> list[str]:
    """Each broken invariant as "name: what is wrong, with ids". Empty when all hold."""
    return [f"{check.__name__}: {sentence}" for check in INVARIANTS for sentence in check(before, event, after)]
