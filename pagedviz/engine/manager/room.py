"""Room in the device pool: free blocks, and with automatic spill those of the least recently scheduled sequences."""

from collections.abc import Collection, Iterable

from pagedviz.engine.blocks.changes import transfers
from pagedviz.engine.blocks.sequence import Sequence
from pagedviz.engine.blocks.state import CacheState
from pagedviz.engine.log import errors


class Room:
    """Makes room for blocks that are to be taken, or refuses with the numbers."""

    def __init__(self, state: CacheState, auto_spill: bool) -> None:
        self._state = state
        self._auto_spill = auto_spill

    def residents(self) -> set[str]:
        """The sequences that lie on the device whole."""
        return {seq.seq_id for seq in self._state.sequences.values() if seq.is_resident}

    def movable(self, sequences: Iterable[Sequence], residents: set[str], held: Collection[int] = ()) -> list[int]:
        """Device blocks of `sequences` that none of `residents` names, that no transfer is at and that are not `held`,
        in table order."""
        kept = (
            {block for other in residents for block in self._state.sequences[other].device_blocks}
            | set(held)
            | self._state.pinned
        )
        return list(dict.fromkeys(block for seq in sequences for block in seq.device_blocks if block not in kept))

    def make(self, seq_id: str, needed: int, alone: int, held: Collection[int] = ()) -> None:
        """Raise unless `needed` blocks are free, or come free by spilling the least recently scheduled sequences.

        `alone` is what the sequence takes with no other in the pool: more than the pool has can never fit. Blocks
        that it is about to hit are `held`, so they stay on the device.
        """
        free = len(self._state.pool.free_blocks)
        if needed <= free:
            return
        total = self._state.total
        if alone > total:
            raise errors.NeverFits(seq_id=seq_id, needed=alone, total=total)
        plan = self._spill_plan(seq_id, needed - free, held) if self._auto_spill else None
        if plan is None:
            raise errors.NoFreeBlocks(seq_id=seq_id, needed=needed, free=free, total=total)
        for victim, blocks in plan:
            transfers.spill(
                self._state, victim, blocks, f"{seq_id} needs room and {victim.seq_id} was scheduled longest ago"
            )

    def _spill_plan(self, seq_id: str, missing: int, held: Collection[int]) -> list[tuple[Sequence, list[int]]] | None:
        """Which blocks of which sequences to spill so that `missing` more come free, least recently scheduled first.

        None when the host has too little room or too few blocks can move. What `seq_id` names stays on the device.
        """
        residents = self.residents() | ({seq_id} & self._state.sequences.keys())
        host_room = len(self._state.host_pool.free_blocks)
        moved: set[int] = set()
        plan: list[tuple[Sequence, list[int]]] = []
        for victim in sorted(self._state.sequences.values(), key=lambda seq: seq.last_scheduled):
            if len(moved) >= missing:
                break
            if victim.seq_id == seq_id or victim.managed or victim.drafts:
                continue
            movable = self.movable([victim], residents - {victim.seq_id}, held)
            blocks = [block for block in movable if block not in moved]
            if len(blocks) > host_room:
                continue
            residents.discard(victim.seq_id)  # even if all of its blocks must wait for a later victim that shares them
            host_room -= len(blocks)
            moved.update(blocks)
            plan.append((victim, blocks))
        return plan if len(moved) >= missing else None
