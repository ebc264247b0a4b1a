"""The physical blocks of one memory: which are free, in which order they go out, how many entries name the rest."""

from collections.abc import Iterable

from pagedviz.engine.log.errors import BlockNotInUse
from pagedviz.engine.policies.free_orders import Freed, FreeOrder
from pagedviz.engine.policies.free_queue import FreeQueue


class BlockPool:
    """A free queue and a reference count for each block. The device has one pool, the host another.

    `free_blocks` is head first: its first block goes out next. `ref_count[block]` counts the table entries (and pins)
    that name the block; it is 0 exactly for the blocks in the queue, and for a null block, which is never handed out.
    """

    def __init__(self, num_blocks: int, free_blocks: Iterable[int]) -> None:
        self.num_blocks = num_blocks
        self.free_blocks = FreeQueue(num_blocks, free_blocks)
        self.ref_count = [0] * num_blocks

    def take(self) -> int:
        """Take the head of the free queue and return it with a `ref_count` of 1. The caller has made sure of room."""
        block = self.free_blocks.first
        self.free_blocks.remove(block)
        self.ref_count[block] = 1
        return block

    def take_hit(self, block: int) -> int:
        """Count one more entry that names a cached block, out of the free queue or in use; return its `ref_count`."""
        if self.ref_count[block] == 0:
            self.free_blocks.remove(block)
        self.ref_count[block] += 1
        return self.ref_count[block]

    def share(self, block: int) -> int:
        """Count one more entry that names `block`; return the new `ref_count`."""
        self._must_be_in_use(block)
        self.ref_count[block] += 1
        return self.ref_count[block]

    def release(self, block: int) -> int:
        """Count one entry less; return the new `ref_count`. At 0 the caller puts the block back with `put_back`."""
        self._must_be_in_use(block)
        self.ref_count[block] -= 1
        return self.ref_count[block]

    def put_back(self, freed: Freed, order: FreeOrder) -> int:
        """Return a block that no table names to the free queue; return its place, counted from the head."""
        return order(self.free_blocks, freed)

    def _must_be_in_use(self, block: int) -> None:
        if self.ref_count[block] == 0:
            raise BlockNotInUse(block=block)
