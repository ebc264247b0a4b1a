"""What must hold for transfers, the host tier and the device blocks that they hold after every event."""

from collections.abc import Iterator

from pagedviz.engine.log.events.base import Event
from pagedviz.engine.log.events.transfers import BlockLoaded, TierEvent, TierStoreBegun
from pagedviz.engine.log.invariants import host_tier as tier
from pagedviz.engine.log.snapshot import Snapshot


def host_tier(before: Snapshot, event: Event, after: Snapshot) -> Iterator[str]:
    """The tier's own rules hold, and every device block of an unfinished transfer has a pin."""
    if after.tier is None:
        return
    for block in sorted(after.tier.held_device_blocks - set(after.pinned)):
        yield f"device block {block} is in a transfer, and has no pin"
    if isinstance(event, TierEvent) and not isinstance(event, BlockLoaded) and before.tier is not None:
        yield from tier.broken(before.tier, event, after.tier)
    if isinstance(event, TierStoreBegun):
        for key, block in zip(event.block_hashes, event.device_blocks, strict=True):
            if block not in before.cached or before.cached[block].block_hash != str(key)[:8]:
                yield f"{str(key)[:8]} is stored from device block {block}, which does not hold it"
