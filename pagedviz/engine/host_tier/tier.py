"""The host as a second cache: copies of full device blocks, found by block hash, loaded instead of computed again.

    free ── begin_store ──> pending ── finish ──> ready ── begin_load ──> loading ── finish, cancel ──> ready
                            pending ── fail, cancel ──> free              loading ── fail ──> failed ──> free

A chunk here is a host chunk, room for one block. Copies take time, so each has a begin and an end, and between the two
nothing that it reads or writes is handed out: not the chunk, not the device block. When a store needs room, the least
recently used chunk that no store and no load holds is evicted. After each atomic change the tier reports one event.
Source: the rules of vLLM V1's offloading manager, with its chunk ids.
"""

import dataclasses
import itertools
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from typing import Literal, Protocol, TypedDict

from pagedviz.engine.log import errors
from pagedviz.engine.log.events.transfers import (
    OLDEST,
    BlockHash,
    TierEvent,
    TierEvicted,
    TierLoadBegun,
    TierLoadCancelled,
    TierLoadFailed,
    TierLoadFinished,
    TierStoreBegun,
    TierStoreCancelled,
    TierStoreFailed,
    TierStoreFinished,
    TierTouched,
)
from pagedviz.engine.log.host_snapshot import TierChunk, TierSnapshot, Transfer


class Device(Protocol):
    """What a change of the tier means for the device's blocks. The tier asks for it before it reports the change."""

    def pin(self, transfer: Transfer) -> None:
        """Pin the device blocks of a transfer that begins."""

    def unpin(self, transfer: Transfer) -> tuple[int | None, ...]:
        """Unpin those of a transfer that has ended; their places in the free queue, None for those still named."""

    def give_hashes(self, load: Transfer) -> None:
        """Give the loaded blocks their hashes; asked for after the report that the load has finished."""

    def forget(self, block_hash: BlockHash) -> None:
        """The host has no copy of it any more."""


class HostTier:
    """Up to `num_chunks` blocks. A chunk that was never used goes out first, then the last one freed."""

    def __init__(self, num_chunks: int, *, device: Device, report: Callable[[TierEvent], None]) -> None:
        self.num_chunks = num_chunks
        self._device = device
        self._report = report
        self._num_used = 0
        self._freed: list[int] = []
        self._chunks: dict[int, TierChunk] = {}
        # The chunk of each hash that has not failed, the least recently used first.
        self._found: OrderedDict[BlockHash, int] = OrderedDict()
        self._transfers: dict[int, Transfer] = {}
        self._held: set[int] = set()
        self._num_begun = 0

    # --- what a user can do ---

    @property
    def held_device_blocks(self) -> Set[int]:
        """The device blocks that an unfinished store reads or an unfinished load writes: none of them may be reused."""
        return self._held

    def __contains__(self, block_hash: BlockHash) -> bool:
        """It is there, or a store fills its chunk."""
        return block_hash in self._found

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """The unfinished ones, as they began."""
        return tuple(self._transfers.values())

    def longest_run(self, block_hashes: Iterable[BlockHash]) -> int:
        """How many of these can be loaded, from the first on without a gap. Pins nothing and counts as no use.

        Example: "a" and "c" are ready, "b" is still being stored; asked for "a", "b", "c" -> 1.
        """
        return sum(1 for _ in itertools.takewhile(self._is_hit, block_hashes))

    def touch(self, block_hashes: Collection[BlockHash]) -> None:
        """Count these as used now, the first as the last used; hashes that are not there are passed over.

        So the tail of a chain is evicted before its head. Without the head, no prompt could hit the tail. A look-up, a
        load, or a store of hashes that are there does not count as a use.
        """
        touched = tuple(block_hash for block_hash in block_hashes if block_hash in self._found)
        newest = itertools.islice(reversed(self._found), len(touched))
        if touched == tuple(newest):
            return
        for block_hash in reversed(touched):
            self._found.move_to_end(block_hash)
        self._report(TierTouched(block_hashes=touched))

    def begin_store(self, blocks: Mapping[BlockHash, int], kept: Collection[BlockHash] = ()) -> Transfer | None:
        """Give a chunk to each of these that is not there yet, all or none; None when all are there.

        `blocks`: for each hash the device block that has it. The new hashes are the most recently used, the last given
        last. To make room, the least recently used hashes are evicted, except those given here and those in `kept`.
        Raises `TooFewChunks`, or `BlockInTransfer`.
        """
        new = {block_hash: block for block_hash, block in blocks.items() if block_hash not in self._found}
        if not new:
            return None
        self._must_be_at_rest(new.values())
        for block_hash in self._to_evict(len(new), {*blocks, *kept}):
            self._evict(block_hash)
        chunks = tuple(self._take_chunk() for _ in new)
        for block_hash, chunk in zip(new, chunks, strict=True):
            self._chunks[chunk] = TierChunk(block_hash, "pending")
            self._found[block_hash] = chunk
        store = self._begin("store", new, chunks)
        self._report(TierStoreBegun(**_fields(store)))
        return store

    def begin_load(self, blocks: Mapping[BlockHash, int]) -> Transfer | None:
        """Pin the chunks of all of these, or none, until the load ends; None when none are given.

        `blocks`: for each hash the device block that it is loaded into. Raises `NotReady`, for example when a hash was
        evicted after the look-up that found it, or `BlockInTransfer`.
        """
        if not blocks:
            return None
        self._must_be_at_rest(blocks.values())
        for block_hash in blocks:
            if not self._is_hit(block_hash):
                raise errors.NotReady(block_hash=block_hash, state="pending" if block_hash in self._found else "absent")
        chunks = tuple(self._found[block_hash] for block_hash in blocks)
        for chunk in chunks:
            held = self._chunks[chunk]
            self._chunks[chunk] = dataclasses.replace(held, state="loading", pins=held.pins + 1)
        load = self._begin("load", blocks, chunks)
        self._report(TierLoadBegun(**_fields(load)))
        return load

    def finish(self, transfer_id: int) -> None:
        """All was copied: a stored hash is a hit now, a loaded chunk loses its pin. Raises `UnknownTransfer`."""
        transfer = self._end(transfer_id)
        if transfer.kind == "load":
            self._report(TierLoadFinished(**_fields(transfer), freed=self._unpin(transfer)))
            self._device.give_hashes(transfer)
            return
        for chunk in transfer.chunks:
            self._chunks[chunk] = dataclasses.replace(self._chunks[chunk], state="ready")
        self._report(TierStoreFinished(**_fields(transfer), queue_indices=self._device.unpin(transfer)))

    def fail(self, transfer_id: int) -> None:
        """The copy failed, and nothing of it is used. Raises `UnknownTransfer`.

        A store leaves nothing on the host. After a load, the hashes that could not be read are not found any more, so
        that the next request does not fail in the same way; each chunk is free once no other load holds it.
        """
        transfer = self._end(transfer_id)
        if transfer.kind == "store":
            self._give_up(transfer)
            self._report(TierStoreFailed(**_fields(transfer), queue_indices=self._device.unpin(transfer)))
            return
        for chunk in transfer.chunks:
            held = self._chunks[chunk]
            # Another load may have failed here before; the hash may then be found in another chunk.
            if held.state != "failed":
                self._lose(held.block_hash)
                self._chunks[chunk] = dataclasses.replace(held, state="failed")
        freed = self._unpin(transfer)
        self._report(TierLoadFailed(**_fields(transfer), queue_indices=self._device.unpin(transfer), freed=freed))

    def cancel(self, transfer_id: int) -> None:
        """The copy is cancelled: a store leaves nothing on the host, a load leaves the host as it was.

        Raises `UnknownTransfer`.
        """
        transfer = self._end(transfer_id)
        if transfer.kind == "store":
            self._give_up(transfer)
            self._report(TierStoreCancelled(**_fields(transfer), queue_indices=self._device.unpin(transfer)))
            return
        freed = self._unpin(transfer)
        self._report(TierLoadCancelled(**_fields(transfer), queue_indices=self._device.unpin(transfer), freed=freed))

    def clear(self, reason: str) -> None:
        """Evict every chunk that no transfer holds."""
        for block_hash in [h for h, chunk in self._found.items() if self._chunks[chunk].state == "ready"]:
            self._evict(block_hash, reason)

    def snapshot(self) -> TierSnapshot:
        """The tier now, frozen."""
        return TierSnapshot(
            num_chunks=self.num_chunks,
            num_used=self._num_used,
            freed=tuple(self._freed),
            chunks=dict(self._chunks),
            recency=tuple(self._found),
            transfers=dict(self._transfers),
            held_device_blocks=frozenset(self._held),
        )

    # --- the atomic changes ---

    def _evict(self, block_hash: BlockHash, reason: str = OLDEST) -> None:
        chunk = self._lose(block_hash)
        self._free(chunk)
        self._report(TierEvicted(block_hash=block_hash, chunk=chunk, reason=reason))

    def _lose(self, block_hash: BlockHash) -> int:
        """A hash is found no more; returns its chunk."""
        self._device.forget(block_hash)
        return self._found.pop(block_hash)

    def _begin(
        self, kind: Literal["store", "load"], blocks: Mapping[BlockHash, int], chunks: tuple[int, ...]
    ) -> Transfer:
        self._num_begun += 1
        transfer = Transfer(self._num_begun, kind, tuple(blocks), tuple(blocks.values()), chunks)
        self._transfers[transfer.transfer_id] = transfer
        self._held.update(transfer.device_blocks)
        self._device.pin(transfer)
        return transfer

    def _end(self, transfer_id: int) -> Transfer:
        if transfer_id not in self._transfers:
            raise errors.UnknownTransfer(transfer_id=transfer_id, known=list(self._transfers))
        transfer = self._transfers.pop(transfer_id)
        self._held.difference_update(transfer.device_blocks)
        return transfer

    def _unpin(self, load: Transfer) -> tuple[int, ...]:
        """Give up a pin of each chunk; return those that had failed and are free now."""
        freed = []
        for chunk in load.chunks:
            held = self._chunks[chunk]
            pins = held.pins - 1
            if held.state == "failed" and not pins:
                self._free(chunk)
                freed.append(chunk)
            else:
                state = held.state if pins else "ready"
                self._chunks[chunk] = dataclasses.replace(held, state=state, pins=pins)
        return tuple(freed)

    def _give_up(self, store: Transfer) -> None:
        for block_hash in store.block_hashes:
            self._free(self._lose(block_hash))

    # --- helpers ---

    def _is_hit(self, block_hash: BlockHash) -> bool:
        return block_hash in self._found and self._chunks[self._found[block_hash]].state != "pending"

    def _to_evict(self, needed: int, given: Collection[BlockHash]) -> list[BlockHash]:
        """The hashes to evict for so many more chunks, the first to go first; refused when too few can go."""
        free = self.num_chunks - len(self._chunks)
        idle = (h for h, chunk in self._found.items() if self._chunks[chunk].state == "ready" and h not in given)
        going = list(itertools.islice(idle, max(0, needed - free)))
        if free + len(going) < needed:
            raise errors.TooFewChunks(needed=needed, free=free, evictable=len(going), total=self.num_chunks)
        return going

    def _take_chunk(self) -> int:
        if self._num_used == self.num_chunks:
            return self._freed.pop()
        self._num_used += 1
        return self._num_used - 1

    def _free(self, chunk: int) -> None:
        del self._chunks[chunk]
        self._freed.append(chunk)

    def _must_be_at_rest(self, device_blocks: Iterable[int]) -> None:
        """Refuse a block that a transfer has already, or that is given twice."""
        seen: set[int] = set()
        for block in device_blocks:
            if block in self._held or block in seen:
                raise errors.BlockInTransfer(block=block)
            seen.add(block)


class Fields(TypedDict):
    transfer_id: int
    block_hashes: tuple[BlockHash, ...]
    device_blocks: tuple[int, ...]
    chunks: tuple[int, ...]


def _fields(transfer: Transfer) -> Fields:
    """A transfer as its events name it."""
    return {
        "transfer_id": transfer.transfer_id,
        "block_hashes": transfer.block_hashes,
        "device_blocks": transfer.device_blocks,
        "chunks": transfer.chunks,
    }
