"""What moves between the device and the host: spilled and reloaded blocks, and all that happens to the host tier."""

from collections.abc import Hashable
from dataclasses import dataclass

from pagedviz.engine.log.events.base import Event, Token
from pagedviz.engine.log.text import sentences

# What a block is found by, its group included if there are several. Equal ones must mean equal contents: the tier
# compares nothing else.
BlockHash = Hashable

OLDEST = "of what nobody stores or loads it was used the longest time ago"


def short(block_hash: BlockHash) -> str:
    """A hash as a sentence shows it: its first 8 digits."""
    return str(block_hash)[:8]


@dataclass(frozen=True)
class BlockSpilled(Event):
    """Block {block} moved to host block {host_block}, because {reason}. Its old place went back to the free queue."""

    seq_id: str
    seq_ids: tuple[str, ...]
    block: int
    host_block: int
    queue_index: int
    reason: str


@dataclass(frozen=True)
class BlockReloaded(Event):
    """Host block {host_block} came back to the device as block {block}, the next out of the free queue, because
    {seq_id} is wanted there."""

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
    """Used now: [{hashes}], the first of them as the last, so that a chain's tail is evicted before its head."""

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

    # Where the device blocks went in the free queue; None for one that a table still names.
    queue_indices: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class TierStoreBegun(TierTransferEvent):
    """Store {transfer_id} has begun: [{hashes}] from device blocks [{device_blocks}] to host chunks [{chunks}].
    Until it has finished it gives no hit, and none of those device blocks is handed out."""


@dataclass(frozen=True)
class TierStoreFinished(TierTransferEnded):
    """Store {transfer_id} has finished: [{hashes}] can be loaded from host chunks [{chunks}], and device blocks
    [{device_blocks}] are held no more."""


@dataclass(frozen=True)
class TierStoreFailed(TierTransferEnded):
    """Store {transfer_id} failed: nothing of [{hashes}] is on the host, host chunks [{chunks}] are free, and
    device blocks [{device_blocks}] are held no more."""


@dataclass(frozen=True)
class TierStoreAborted(TierTransferEnded):
    """Store {transfer_id} was called off: nothing of [{hashes}] is on the host, host chunks [{chunks}] are free,
    and device blocks [{device_blocks}] are held no more."""


@dataclass(frozen=True)
class TierLoadBegun(TierTransferEvent):
    """Load {transfer_id} has begun: [{hashes}] from host chunks [{chunks}], each with one pin more, to device
    blocks [{device_blocks}]."""


@dataclass(frozen=True)
class TierLoadEnded(TierTransferEnded, abstract=True):
    """Load {transfer_id} has ended. Each of host chunks [{chunks}] has one pin fewer."""

    freed: tuple[int, ...] = ()


@dataclass(frozen=True)
class TierLoadFinished(TierLoadEnded):
    """Load {transfer_id} has finished: device blocks [{device_blocks}] hold [{hashes}]. Each of host chunks
    [{chunks}] has one pin fewer, which freed {freed:failed chunk}."""


@dataclass(frozen=True)
class TierLoadFailed(TierLoadEnded):
    """Load {transfer_id} failed: host chunks [{chunks}] could not be read, and nobody finds [{hashes}] there any
    more. Each has one pin fewer, which freed {freed:failed chunk}."""


@dataclass(frozen=True)
class TierLoadAborted(TierLoadEnded):
    """Load {transfer_id} was called off: device blocks [{device_blocks}] hold nothing of use, and what is on the host
    is as good as before. Each of host chunks [{chunks}] has one pin fewer, which freed {freed:failed chunk}."""


@dataclass(frozen=True)
class BlockLoaded(TierEvent):
    """Block {block} holds what the host kept, and has its hash again, {block_hash}: whoever begins with the same tokens
    may hit it. It went into the free queue at place {queue_index}."""

    block: int
    block_hash: str
    parent_hash: str | None
    tokens: tuple[Token, ...]
    salt: str | None
    queue_index: int
