"""The tensors of one launch of the kernels in each group of layers, as a serving engine's worker passes them."""

import itertools
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pagedviz.engine.log.events.base import Event, Write
from pagedviz.engine.log.events.blocks import Written
from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.engine.policies.windows import first_seen

NO_SLOT = -1  # of a token that is in the cache already: its query attends, and its K and V are not written


@dataclass(frozen=True)
class LaunchInput:
    """The tensors of one launch over every sequence on the device, in the order of `seq_ids`.

    A sequence that writes has a query for each of its new tokens, every other sequence one for its newest:
    `query_lens`. block_tables int32 [num_seqs, max_blocks], rows padded with the null block, or with -1 where there is
    none; seq_lens int32 [num_seqs]; query_start_loc int32 [num_seqs + 1]: tokens query_start_loc[i] up to
    query_start_loc[i + 1] of q are sequence i's; slot_mapping int64 [num_tokens]: where each token's K and V go, -1 for
    nowhere. Made on the CPU. Layers of another group have other tables and slots, and perhaps another `window`.
    """

    seq_ids: tuple[str, ...]
    query_lens: tuple[int, ...]
    block_tables: Tensor
    seq_lens: Tensor
    query_start_loc: Tensor
    slot_mapping: Tensor
    window: int | None = None

    def on(self, device: torch.device) -> "LaunchInput":
        """The same launch with attention's tensors on `device`. `KVCache.store` reads the slots on the CPU."""
        return replace(
            self,
            block_tables=self.block_tables.to(device),
            seq_lens=self.seq_lens.to(device),
            query_start_loc=self.query_start_loc.to(device),
        )

    @property
    def is_decode(self) -> bool:
        """Every sequence has one query."""
        return all(query_len == 1 for query_len in self.query_lens)


def launch_input(snapshot: Snapshot, event: Event | None, group: int = 0) -> LaunchInput:
    """The launch of a step in a group's layers: `event` is what happened in the step, `snapshot` the state after it.

    A sequence that writes nothing is left out while a block that its newest token sees is not on the device.

    Example: B holds 6 tokens, and A writes its prompt of 3 into slots 28, 29, 30 -> seq_ids (B, A), query_lens (1, 3),
    query_start_loc [0, 1, 4], slot_mapping [-1, 28, 29, 30].
    """
    writes = event.writes if isinstance(event, Written) else ()
    written = {write.seq_id: slots_of(snapshot, write, group) for write in writes}
    seq_ids = tuple(s for s in snapshot.tokens if s in written or newest_sees_all(snapshot, s))
    slots = [written.get(s, (NO_SLOT,)) for s in seq_ids]
    query_lens = tuple(map(len, slots))
    rows = [[block for block in snapshot.tables(group)[s] if block is not None] for s in seq_ids]
    width = max(map(len, rows), default=0)
    padding = -1 if snapshot.null_block is None else snapshot.null_block
    table = [row + [padding] * (width - len(row)) for row in rows]
    return LaunchInput(
        seq_ids=seq_ids,
        query_lens=query_lens,
        block_tables=torch.tensor(table, dtype=torch.int32).view(len(seq_ids), width),
        seq_lens=torch.tensor([snapshot.seq_len(s) for s in seq_ids], dtype=torch.int32),
        query_start_loc=torch.tensor([0, *itertools.accumulate(query_lens)], dtype=torch.int32),
        slot_mapping=torch.tensor([slot for row in slots for slot in row], dtype=torch.int64),
        window=snapshot.windows[group],
    )


def slots_of(snapshot: Snapshot, write: Write, group: int) -> tuple[int, ...]:
    """The slots of a write's tokens in a group's layers. The event has those of group 0; the tables give all others."""
    if group == 0:
        return write.slots
    row, size = snapshot.tables(group)[write.seq_id], snapshot.block_size
    positions = range(write.position, write.position + len(write.tokens))
    blocks = [row[position // size] for position in positions]
    return tuple(b * size + p % size for b, p in zip(blocks, positions, strict=True) if b is not None)


def newest_sees_all(snapshot: Snapshot, seq_id: str) -> bool:
    """Is every token that the newest token sees in a block on the device, in every group?

    Not while a hit prefix is in the tables of some groups only, and not after a block has been released that the newest
    token still sees and the next one does not.
    """
    last, size = snapshot.seq_len(seq_id) - 1, snapshot.block_size
    if last < 0 or not snapshot.is_resident(seq_id):
        return False
    for window, tables in zip(snapshot.windows, snapshot.all_tables, strict=True):
        first = first_seen(last, window)
        row = tables[seq_id]
        if len(row) <= last // size or snapshot.null_block in row[first // size : last // size + 1]:
            return False
    return True
