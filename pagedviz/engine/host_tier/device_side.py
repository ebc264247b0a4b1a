"""What the host tier's transfers mean for the device's blocks: which are held, which go back, what comes in."""

from pagedviz.engine.blocks.hashing import Link
from pagedviz.engine.blocks.state import CacheState
from pagedviz.engine.log.events.transfers import BlockHash, BlockLoaded
from pagedviz.engine.log.host_snapshot import Transfer
from pagedviz.engine.policies.free_orders import Freed


class DeviceSide:
    """A device block that a transfer reads or writes has a pin: it is in no free queue, and counted in `ref_count`.

    `host_links` are what the host's chunks hold, by their key, which is the whole hash. While `goes_out` is set, a
    block that a store lets go of is the next out of the free queue.
    """

    def __init__(self, state: CacheState) -> None:
        self.host_links: dict[BlockHash, Link] = {}
        self.goes_out = False
        self._state = state
        self._loading: dict[int, list[Link]] = {}  # by transfer: a chunk that fails for one load is not lost to another

    def hold(self, transfer: Transfer) -> None:
        """Pin the device blocks of a transfer that begins."""
        if transfer.kind == "load":
            self._loading[transfer.transfer_id] = [self.host_links[key] for key in transfer.block_hashes]
        for key, block in zip(transfer.block_hashes, transfer.device_blocks, strict=True):
            if transfer.kind == "store":
                self.host_links[key] = self._state.cache.links[block]
            self._state.pool.take_hit(block)
            self._state.pinned.add(block)

    def let_go(self, transfer: Transfer) -> tuple[int | None, ...]:
        """Unpin the device blocks of a transfer that has ended, the last first. Returns the places in the free queue of
        those that no table names, None for the others."""
        self._loading.pop(transfer.transfer_id, None)
        places, run = list[int | None](), list[int]()
        for block in reversed(transfer.device_blocks):
            places.append(self._unpin(block, run))
        return tuple(reversed(places))

    def _unpin(self, block: int, run: list[int]) -> int | None:
        state = self._state
        state.pinned.remove(block)
        if state.pool.release(block):
            return None
        if self.goes_out:
            state.pool.free_blocks.insert(block, None)
            return 0
        last_used = state.last_used.pop(block, 0)
        freed = Freed(block, block in state.cache, (last_used, 0), run)
        return state.pool.put_back(freed, state.profile.free_order)

    def forget(self, block_hash: BlockHash) -> None:
        """The host has no copy of it any more."""
        del self.host_links[block_hash]

    def take_in(self, load: Transfer) -> None:
        """Give the loaded blocks their hashes, the deepest first, so that the tail of the chain is evicted first."""
        links = self._loading.pop(load.transfer_id)
        for block, link in reversed(list(zip(load.device_blocks, links, strict=True))):
            self._loaded(block, link)

    def _loaded(self, block: int, link: Link) -> None:
        state = self._state
        state.pinned.remove(block)
        state.pool.release(block)
        state.cache.put(block, link)
        state.uses[block] = 1
        place = state.pool.put_back(Freed(block, True, (state.engine_step, 0)), state.profile.free_order)
        state.report(
            BlockLoaded(
                block=block,
                block_hash=link.short,
                parent_hash=link.parent_short,
                tokens=link.tokens,
                salt=link.salt,
                queue_index=place,
            )
        )
