"""The host tier at one moment, frozen. Its chunks and transfers are frozen too: the tier replaces them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pagedviz.engine.log.events.transfers import BlockHash

State = Literal["pending", "ready", "loading", "failed"]


@dataclass(frozen=True)
class TierChunk:
    """What one chunk holds, and what may be done with it.

    "pending": a store fills it, so it is no hit. "ready": a hit, and evicted when its turn comes. "loading": a hit that
    `pins` unfinished loads read, so it stays. "failed": a load could not read it; its hash finds it no more, and the
    chunk is free when the last of its pins is given up.
    """

    block_hash: BlockHash
    state: State
    pins: int = 0


@dataclass(frozen=True)
class Transfer:
    """An unfinished copy, between `device_blocks[i]` and `chunks[i]` of what has `block_hashes[i]`."""

    transfer_id: int
    kind: Literal["store", "load"]
    block_hashes: tuple[BlockHash, ...]
    device_blocks: tuple[int, ...]
    chunks: tuple[int, ...]


@dataclass(frozen=True)
class TierSnapshot:
    """Everything the tier knows.

    `chunks` lists those that hold a block. Chunks from `num_used` on were never handed out; `freed` ones were, the last
    freed last. `recency` has the hashes that are found, the least recently used first. `held_device_blocks` are those
    that an unfinished transfer reads or writes.
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
        """In the order in which they go out: those never used, then the last freed first."""
        return (*range(self.num_used, self.num_chunks), *reversed(self.freed))

    def to_json(self) -> dict[str, Any]:
        return {
            "num_chunks": self.num_chunks,
            "chunks": {str(chunk): vars(held) for chunk, held in sorted(self.chunks.items())},
            "free_chunks": list(self.free_chunks),
            "recency": list(self.recency),
            "transfers": {str(number): vars(transfer) for number, transfer in self.transfers.items()},
        }
