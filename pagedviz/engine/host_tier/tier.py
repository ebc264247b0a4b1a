"""The host as a second cache: copies of full device blocks, found by block hash, loaded instead of computed again.

    free ── begin_store ──> pending ── finish ──> ready ── begin_load ──> loading ── finish, abort ──> ready
                            pending ── fail, abort ──> free               loading ── fail ──> failed ──> free

A chunk here is a host chunk, room for one block. Copies take time, so each has a begin and an end, and between the two
nothing that it reads or writes is given to anybody else: not the chunk, not the device block. What neither a store nor
a load holds is evicted when a store needs room, least recently used first. After each atomic change the tier reports
one event.
Source: the rules of vLLM V1's offloading manager, with its chunk ids.
"""

import dataclasses
import itertools
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from typing import Literal

from pagedviz.engine.log import errors
from pagedviz.engine.log.events.transfers import (
    OLDEST,
    BlockHash,
    TierEvent,
    TierEvicted,
    TierLoadAborted,
    TierLoadBegun,
    TierLoadFailed,
    TierLoadFinished,
    TierStoreAborted,
    TierStoreBegun,
    TierStoreFailed,
    TierStoreFinished,
    TierTouched,
)
from pagedviz.engine.log.host_snapshot import TierChunk, TierSnapshot, Transfer


class HostTier:
    """Up to `num_chunks` blocks. A chunk that was never used goes out first, then the last one freed."""

    def __init__(self, num_chunks: int, *, report: Callable[[TierEvent], None]) -> None:
        self.num_chunks = num_chunks
        self._report = report
        self._num_used = 0
        self._freed: list[int] = []
        self._chunks: dict[int, TierChunk] = {}
        # Whatever has not failed, the least recently used first.
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
        """Count these as used now, the first as the last used; what is not there is passed over.

        A chain's tail is then evicted before its head, without which it would be no hit. Neither a look-up nor a load
        nor a store of what is there does it by itself.
        """
        touched = tuple(block_hash for block_hash in block_hashes if block_hash in self._found)
        newest = itertools.islice(reversed(self._found), len(touched))
        if touched == tuple(newest):
            return
        for block_hash in reversed(touched):
            self._found.move_to_end(block_hash)
        self._report(TierTouched(touched))

    def begin_store(self, blocks: Mapping[BlockHash, int], kept: Collection[BlockHash] = ()) -> Transfer | None:
        """Give a chunk to each of these that is not there yet, all or none; None when all are there.

        `blocks`: the device block that holds what has this hash. The new ones are the most recently used, the last
        given last. To make room, what is least recently used goes, but nothing that is given here, nor what is to be
        `kept`. Raises `TooFewChunks`, or `BlockInTransfer`.
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
        self._report(TierStoreBegun(*_told(store)))
        return store

    def begin_load(self, blocks: Mapping[BlockHash, int]) -> Transfer | None:
        """Pin the chunks of all of these, or none, until the load ends; None when none are given.

        `blocks`: the device block that what has this hash goes to. Raises `NotReady`, as when one was evicted after
        the look-up that found it, or `BlockInTransfer`.
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
        self._report(TierLoadBegun(*_told(load)))
        return load

    def finish(self, transfer_id: int) -> None:
        """All was copied: what was stored is a hit now, what was loaded gives up its pins. Raises `UnknownTransfer`."""
        transfer = self._end(transfer_id)
        if transfer.kind == "load":
            self._report(TierLoadFinished(*_told(transfer), freed=self._unpin(transfer)))
            return
        for chunk in transfer.chunks:
            self._chunks[chunk] = dataclasses.replace(self._chunks[chunk], state="ready")
        self._report(TierStoreFinished(*_told(transfer)))

    def fail(self, transfer_id: int) -> None:
        """The copy failed, and nothing of it is used. Raises `UnknownTransfer`.

        What was to be stored is not on the host. What could not be read from the host is found no more, or the next
        request would fail in the same way; each chunk is free once no other load holds it.
        """
        transfer = self._end(transfer_id)
        if transfer.kind == "store":
            self._forget(transfer)
            self._report(TierStoreFailed(*_told(transfer)))
            return
        for chunk in transfer.chunks:
            held = self._chunks[chunk]
            # Another load may have failed here before; the hash may then be found in another chunk.
            if held.state != "failed":
                del self._found[held.block_hash]
                self._chunks[chunk] = dataclasses.replace(held, state="failed")
        self._report(TierLoadFailed(*_told(transfer), freed=self._unpin(transfer)))

    def abort(self, transfer_id: int) -> None:
        """The copy was called off, and nothing copies any more: what is on the host is as good as before.

        What was to be stored is not there. Raises `UnknownTransfer`.
        """
        transfer = self._end(transfer_id)
        if transfer.kind == "store":
            self._forget(transfer)
            self._report(TierStoreAborted(*_told(transfer)))
            return
        self._report(TierLoadAborted(*_told(transfer), freed=self._unpin(transfer)))

    def clear(self, reason: str) -> None:
        """Evict all that nobody stores or loads."""
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
        chunk = self._found.pop(block_hash)
        self._free(chunk)
        self._report(TierEvicted(block_hash, chunk, reason))

    def _begin(
        self, kind: Literal["store", "load"], blocks: Mapping[BlockHash, int], chunks: tuple[int, ...]
    ) -> Transfer:
        self._num_begun += 1
        transfer = Transfer(self._num_begun, kind, tuple(blocks), tuple(blocks.values()), chunks)
        self._transfers[transfer.transfer_id] = transfer
        self._held.update(transfer.device_blocks)
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

    def _forget(self, store: Transfer) -> None:
        for block_hash, chunk in zip(store.block_hashes, store.chunks, strict=True):
            del self._found[block_hash]
            self._free(chunk)

    # --- helpers ---

    def _is_hit(self, block_hash: BlockHash) -> bool:
        return block_hash in self._found and self._chunks[self._found[block_hash]].state != "pending"

    def _to_evict(self, needed: int, given: Collection[BlockHash]) -> list[BlockHash]:
        """What has to go for so many more chunks, first to go first; refused when too little can."""
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
        """Each under no transfer yet, and given once."""
        seen: set[int] = set()
        for block in device_blocks:
            if block in self._held or block in seen:
                raise errors.BlockInTransfer(block=block)
            seen.add(block)


def _told(transfer: Transfer) -> tuple[int, tuple[BlockHash, ...], tuple[int, ...], tuple[int, ...]]:
    """A transfer as its events tell it."""
    return transfer.transfer_id, transfer.block_hashes, transfer.device_blocks, transfer.chunks
