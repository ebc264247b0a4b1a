"""A host tier that is watched: each event it reports is checked against every invariant and the order of use."""

from pagedviz.engine.host_tier.tier import HostTier
from pagedviz.engine.log.events.transfers import TierEvent, TierEvicted
from pagedviz.engine.log.invariants import host_tier


class NoDevice:
    """Holds nothing: for a tier by itself."""

    def pin(self, transfer):
        pass

    def unpin(self, transfer):
        return ()

    def give_hashes(self, load):
        pass

    def forget(self, block_hash):
        pass


class WatchedTier(HostTier):
    """The real tier; `events` is all that it has reported."""

    def __init__(self, num_chunks: int) -> None:
        super().__init__(num_chunks, device=NoDevice(), report=self._watch)
        self.events: list[TierEvent] = []
        self._before = self.snapshot()
        self._given = frozenset()

    def begin_store(self, blocks):
        self._given = frozenset(blocks)
        return super().begin_store(blocks)

    def _watch(self, event: TierEvent) -> None:
        after = self.snapshot()
        assert host_tier.broken(self._before, event, after) == []
        assert self.held_device_blocks == after.held_device_blocks
        if isinstance(event, TierEvicted):
            idle = {held.block_hash for held in self._before.chunks.values() if held.state == "ready"} - self._given
            assert event.block_hash == next(h for h in self._before.recency if h in idle)
        self.events.append(event)
        self._before = after

    @property
    def chunks(self) -> dict[object, tuple[int, str, int]]:
        """Of each hash on the host: chunk, state, pins. Chunks that have failed are not found, so not here."""
        held = self.snapshot().chunks.items()
        return {has.block_hash: (chunk, has.state, has.pins) for chunk, has in held if has.state != "failed"}

    def chunk(self, block_hash: object) -> int:
        return self.chunks[block_hash][0]

    def stored(self, *block_hashes: object, block: int = 100) -> tuple[int, ...]:
        """Store and finish, from device blocks that do not matter; return the chunks."""
        store = self.begin_store({block_hash: block + i for i, block_hash in enumerate(block_hashes)})
        self.finish(store.transfer_id)
        return store.chunks
