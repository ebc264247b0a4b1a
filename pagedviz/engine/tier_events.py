"""What can happen to the host tier: one frozen event an atomic change, whose docstring is its sentence.

A family of its own: the block manager's events are what a run's steps and the stage know.
"""

from dataclasses import dataclass

from pagedviz.engine.tier_snapshot import BlockHash
from pagedviz.engine.told import Told


@dataclass(frozen=True)
class TierEvent(Told):
    """Something happened to the host tier."""


@dataclass(frozen=True)
class TierEvicted(TierEvent):
    """{block_hash} was evicted from host chunk {chunk}: of what nobody stores or loads it was used the longest time
    ago."""

    block_hash: BlockHash
    chunk: int


@dataclass(frozen=True)
class TierTouched(TierEvent):
    """Used now: [{block_hashes}], the first of them as the last, so that a chain's tail is evicted before its head."""

    block_hashes: tuple[BlockHash, ...]


@dataclass(frozen=True)
class TierTransferEvent(TierEvent):
    """Something happened to transfer {transfer_id}."""

    transfer_id: int
    block_hashes: tuple[BlockHash, ...]
    device_blocks: tuple[int, ...]
    chunks: tuple[int, ...]


@dataclass(frozen=True)
class TierStoreBegun(TierTransferEvent):
    """Store {transfer_id} has begun: [{block_hashes}] from device blocks [{device_blocks}] to host chunks [{chunks}].
    Until it has finished it gives no hit, and none of those device blocks is handed out."""


@dataclass(frozen=True)
class TierStoreFinished(TierTransferEvent):
    """Store {transfer_id} has finished: [{block_hashes}] can be loaded from host chunks [{chunks}], and device blocks
    [{device_blocks}] are held no more."""


@dataclass(frozen=True)
class TierStoreFailed(TierTransferEvent):
    """Store {transfer_id} failed: nothing of [{block_hashes}] is on the host, host chunks [{chunks}] are free, and
    device blocks [{device_blocks}] are held no more."""


@dataclass(frozen=True)
class TierStoreAborted(TierTransferEvent):
    """Store {transfer_id} was called off: nothing of [{block_hashes}] is on the host, host chunks [{chunks}] are free,
    and device blocks [{device_blocks}] are held no more."""


@dataclass(frozen=True)
class TierLoadBegun(TierTransferEvent):
    """Load {transfer_id} has begun: [{block_hashes}] from host chunks [{chunks}], each with one pin more, to device
    blocks [{device_blocks}]."""


@dataclass(frozen=True)
class TierLoadEnded(TierTransferEvent):
    """Load {transfer_id} has ended. Each of host chunks [{chunks}] has one pin fewer."""

    freed: tuple[int, ...] = ()


@dataclass(frozen=True)
class TierLoadFinished(TierLoadEnded):
    """Load {transfer_id} has finished: device blocks [{device_blocks}] hold [{block_hashes}]. Each of host chunks
    [{chunks}] has one pin fewer, which freed {freed:failed chunk}."""


@dataclass(frozen=True)
class TierLoadFailed(TierLoadEnded):
    """Load {transfer_id} failed: host chunks [{chunks}] could not be read, and nobody finds [{block_hashes}] there any
    more. Each has one pin fewer, which freed {freed:failed chunk}."""


@dataclass(frozen=True)
class TierLoadAborted(TierLoadEnded):
    """Load {transfer_id} was called off: device blocks [{device_blocks}] hold nothing of use, and what is on the host
    is as good as before. Each of host chunks [{chunks}] has one pin fewer, which freed {freed:failed chunk}."""
