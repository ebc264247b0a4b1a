"""The state of the host tier, frozen. Its chunks and transfers are frozen too: the tier replaces them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pagedviz.engine.log.events.transfers import BlockHash

State = Literal["pending", "ready", "loading", "failed"]


@dataclass(frozen=True)
class TierChunk:
    """What one chunk holds.

    "pending": a store fills it, so it is not a hit yet. "ready": it is a hit, and can be evicted. "loading": it is a
    hit, and `pins` unfinished loads read it, so it cannot be evicted. "failed": a load could not read it, so its hash
    no longer finds it; the chunk is free when its last pin is gone.
    """

    block_hash: BlockHash
    state: State
    pins: int = 0


@dataclass(frozen=True)
class Transfer:
    """An unfinished copy of blocks: of `block_hashes[i]`, between `device_blocks[i]` and `chunks[i]`."""

    transfer_id: int
    kind: Literal["store", "load"]
    block_hashes: tuple[BlockHash, ...]
    device_blocks: tuple[int, ...]
    chunks: tuple[int, ...]


@dataclass(frozen=True)
class TierSnapshot:
    """The whole state of the tier.

    `chunks` has the chunks that hold a block. Chunks from `num_used` on were never used; `freed` chunks are free again,
    the last freed one last. `recency` lists all hashes that can be found, the least recently used first. Unfinished
    transfers read or write the `held_device_blocks`.
    """

    num_chunks: int
    num_used: int
    freed: tuple[int, ...]
    chunks: Mapping[int, TierChunk]
    recency: tuple[BlockHash, ...]
    transfers: Mapping[int, Transfer]
    held_device_blocks: frozenset[int]

    @property
    def free_chunks(self) -> tuple[int, ...]:
        """In the order in which they are handed out: first those never used, then the last freed first."""
        return (*range(self.num_used, self.num_chunks), *reversed(self.freed))

    def to_json(self) -> dict[str, Any]:
        return {
            "num_chunks": self.num_chunks,
            "chunks": {str(chunk): vars(held) for chunk, held in sorted(self.chunks.items())},
            "free_chunks": list(self.free_chunks),
            "recency": list(self.recency),
            "transfers": {str(number): vars(transfer) for number, transfer in self.transfers.items()},
        }
