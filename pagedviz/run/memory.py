"""How much of the memory a snapshot uses."""

from dataclasses import dataclass

from pagedviz.engine.log.snapshot import Snapshot


@dataclass(frozen=True)
class Memory:
    """The use of the device pool in slots, and of the host in blocks. A slot holds one token's K and V in every layer
    of a group.

    `filled` slots hold a token, `unfilled` slots lie behind the last token of a used block, `free` slots in free
    blocks. `entries` counts the table entries on the device without those of the null block, `blocks` the distinct
    blocks in use. The difference is saved by sharing.
    """

    filled: int
    unfilled: int
    free: int
    entries: int
    blocks: int
    host_blocks: int


def memory(snapshot: Snapshot) -> Memory:
    """Count the slots of the device pool, and the used blocks of the host."""
    filled: dict[int, int] = {}
    entries = 0
    for seq_id, row in ((seq_id, row) for tables in snapshot.all_tables for seq_id, row in tables.items()):
        for j, block in enumerate(row):
            if block is not None and block != snapshot.null_block:
                filled[block] = max(filled.get(block, 0), snapshot.filled(seq_id, j))
                entries += 1
    used = len(snapshot.ref_counts) * snapshot.block_size
    return Memory(
        filled=sum(filled.values()),
        unfilled=used - sum(filled.values()),
        free=len(snapshot.free_blocks) * snapshot.block_size,
        entries=entries,
        blocks=len(snapshot.ref_counts),
        host_blocks=len(snapshot.host_ref_counts),
    )
