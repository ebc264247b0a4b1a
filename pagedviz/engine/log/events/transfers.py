"""Events of transfers between the device and the host: blocks spilled and reloaded, and all events of the host tier."""

from collections.abc import Hashable
from dataclasses import dataclass

from pagedviz.engine.log.events.base import Event, Token
from pagedviz.engine.log.text import sentences

# The key by which a block is found; it includes the group if there are several. Equal hashes must mean equal contents,
# because the tier compares nothing else.
BlockHash = Hashable

OLDEST = "of the chunks that no transfer uses, its last use is the longest time ago"


def short(block_hash: BlockHash) -> str:
    """The part of a hash that a sentence shows: its first 8 digits."""
    return str(block_hash)[:8]


@dataclass(frozen=True)
class BlockSpilled(Event):
    """Block {block} moved to host block {host_block}, because {reason}. Device block {block} went into the free queue
    at place {queue_index}."""

    seq_id: str
    seq_ids: tuple[str, ...]
    block: int
    host_block: int
    queue_index: int
    reason: str


@dataclass(frozen=True)
class BlockReloaded(Event):
    """Host block {host_block} moved to device block {block}, the next out of the free queue, because {seq_id} is needed
    there."""

    seq_id: str
    seq_ids: tuple[str, ...]
    block: int
    host_block: int
    queue_index: int


@dataclass(frozen=True)
class TierEvent(Event, abstract=True):
    """Something happened to the host tier."""


@dataclass(frozen=True)
class TierEvicted(TierEvent):
    """{hash} was evicted from host chunk {chunk}: {reason}."""

    block_hash: BlockHash
    chunk: int
    reason: str = OLDEST

    @property
    def phrases(self) -> dict[str, str]:
        return {"hash": short(self.block_hash)}


@dataclass(frozen=True)
class TierTouched(TierEvent):
    """Marked as used now: [{hashes}], the first of them as the most recent. So the tail of a chain is evicted before
    its head."""

    block_hashes: tuple[BlockHash, ...]

    @property
    def phrases(self) -> dict[str, str]:
        return {"hashes": sentences.named([short(block_hash) for block_hash in self.block_hashes])}


@dataclass(frozen=True)
class TierTransferEvent(TierEvent, abstract=True):
    """Something happened to transfer {transfer_id}."""

    transfer_id: int
    block_hashes: tuple[BlockHash, ...]
    device_blocks: tuple[int, ...]
    chunks: tuple[int, ...]

    @property
    def phrases(self) -> dict[str, str]:
        return {"hashes": sentences.named([short(block_hash) for block_hash in self.block_hashes])}


@dataclass(frozen=True)
class TierTransferEnded(TierTransferEvent, abstract=True):
    """Transfer {transfer_id} has ended."""

    # The place of each device block in the free queue; None for a block that a table still names.
    queue_indices: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class TierStoreBegun(TierTransferEvent):
    """Store {transfer_id} has begun. It copies [{hashes}] from device blocks [{device_blocks}] to host chunks
    [{chunks}]. Until it has finished, these chunks give no hit, and these device blocks are not handed out."""


@dataclass(frozen=True)
class TierStoreFinished(TierTransferEnded):
    """Store {transfer_id} has finished. [{hashes}] can be loaded from host chunks [{chunks}], and device blocks
    [{device_blocks}] are no longer held."""


@dataclass(frozen=True)
class TierStoreFailed(TierTransferEnded):
    """Store {transfer_id} failed. None of [{hashes}] is on the host. Host chunks [{chunks}] are free, and device blocks
    [{device_blocks}] are no longer held."""


@dataclass(frozen=True)
class TierStoreCancelled(TierTransferEnded):
    """Store {transfer_id} was cancelled. None of [{hashes}] is on the host. Host chunks [{chunks}] are free, and device
    blocks [{device_blocks}] are no longer held."""


@dataclass(frozen=True)
class TierLoadBegun(TierTransferEvent):
    """Load {transfer_id} has begun. It copies [{hashes}] from host chunks [{chunks}] to device blocks
    [{device_blocks}]. Each of these chunks has one more pin."""


@dataclass(frozen=True)
class TierLoadEnded(TierTransferEnded, abstract=True):
    """Load {transfer_id} has ended. Each of host chunks [{chunks}] has one pin less."""

    freed: tuple[int, ...] = ()


@dataclass(frozen=True)
class TierLoadFinished(TierLoadEnded):
    """Load {transfer_id} has finished. Device blocks [{device_blocks}] hold [{hashes}]. Each of host chunks [{chunks}]
    has one pin less, which freed {freed:failed chunk}."""


@dataclass(frozen=True)
class TierLoadFailed(TierLoadEnded):
    """Load {transfer_id} failed. Host chunks [{chunks}] could not be read, so [{hashes}] can no longer be found there.
    Each chunk has one pin less, which freed {freed:failed chunk}."""


@dataclass(frozen=True)
class TierLoadCancelled(TierLoadEnded):
    """Load {transfer_id} was cancelled. Device blocks [{device_blocks}] hold garbage. Host chunks [{chunks}] are
    unchanged, and each has one pin less, which freed {freed:failed chunk}."""


@dataclass(frozen=True)
class BlockLoaded(TierEvent):
    """Block {block} was loaded from the host, and has its hash again, {block_hash}. A sequence that begins with the
    same tokens can hit it. The block went into the free queue at place {queue_index}."""

    block: int
    block_hash: str
    parent_hash: str | None
    tokens: tuple[Token, ...]
    salt: str | None
    queue_index: int
