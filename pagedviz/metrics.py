"""A snapshot in numbers, each with its unit."""

from dataclasses import dataclass

from pagedviz.engine.snapshot import Snapshot


@dataclass(frozen=True)
class Memory:
    """How the device pool is used, in slots (one holds a token's K and V in every layer), and the host in blocks.

    `filled` slots hold a token, `unfilled` ones lie behind the last token of a used block, `free` ones elsewhere.
    `entries` are table entries on the device, `blocks` the distinct blocks that they name: the difference is shared.
    """

    filled: int
    unfilled: int
    free: int
    entries: int
    blocks: int
    host_blocks: int


def memory(snapshot: Snapshot) -> Memory:
    """Count the slots of the device pool and the blocks used on the host."""
    filled: dict[int, int] = {}
    for seq_id, row in snapshot.block_tables.items():
        for j, block in enumerate(row):
            if block is not None:
                filled[block] = max(filled.get(block, 0), snapshot.filled(seq_id, j))
    used = len(snapshot.ref_counts) * snapshot.block_size
    return Memory(
        filled=sum(filled.values()),
        unfilled=used - sum(filled.values()),
        free=len(snapshot.free_blocks) * snapshot.block_size,
        entries=sum(block is not None for row in snapshot.block_tables.values() for block in row),
        blocks=len(snapshot.ref_counts),
        host_blocks=len(snapshot.host_ref_counts),
    )
