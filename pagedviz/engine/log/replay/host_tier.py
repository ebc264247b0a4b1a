"""The tier's events alone rebuild it: `apply` is a pure function of a snapshot and an event."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Literal

from pagedviz.engine.log.events.transfers import (
    BlockHash,
    TierEvent,
    TierEvicted,
    TierLoadBegun,
    TierLoadCancelled,
    TierLoadEnded,
    TierLoadFailed,
    TierLoadFinished,
    TierStoreBegun,
    TierStoreCancelled,
    TierStoreFailed,
    TierStoreFinished,
    TierTouched,
    TierTransferEvent,
)
from pagedviz.engine.log.host_snapshot import TierChunk, TierSnapshot, Transfer


def apply(before: TierSnapshot, event: TierEvent) -> TierSnapshot:
    """The tier after `event`. `before` is not changed."""
    return _CHANGES[type(event)](before, event)


def _without(recency: tuple[BlockHash, ...], gone: Iterable[BlockHash]) -> tuple[BlockHash, ...]:
    gone = set(gone)
    return tuple(block_hash for block_hash in recency if block_hash not in gone)


def _with(s: TierSnapshot, changes: dict[int, TierChunk], freed: tuple[int, ...] = ()) -> TierSnapshot:
    """The tier with some chunks changed and some freed."""
    chunks = {chunk: held for chunk, held in {**s.chunks, **changes}.items() if chunk not in freed}
    return dataclasses.replace(s, chunks=chunks, freed=s.freed + freed)


def _begun(s: TierSnapshot, e: TierTransferEvent, kind: Literal["store", "load"]) -> TierSnapshot:
    transfer = Transfer(e.transfer_id, kind, e.block_hashes, e.device_blocks, e.chunks)
    return dataclasses.replace(
        s,
        transfers={**s.transfers, e.transfer_id: transfer},
        held_device_blocks=s.held_device_blocks | set(e.device_blocks),
    )


def _ended(s: TierSnapshot, e: TierTransferEvent) -> TierSnapshot:
    return dataclasses.replace(
        s,
        transfers={number: transfer for number, transfer in s.transfers.items() if number != e.transfer_id},
        held_device_blocks=s.held_device_blocks - set(e.device_blocks),
    )


def _evicted(s: TierSnapshot, e: TierEvicted) -> TierSnapshot:
    return dataclasses.replace(_with(s, {}, freed=(e.chunk,)), recency=_without(s.recency, [e.block_hash]))


def _touched(s: TierSnapshot, e: TierTouched) -> TierSnapshot:
    return dataclasses.replace(s, recency=_without(s.recency, e.block_hashes) + e.block_hashes[::-1])


def _store_begun(s: TierSnapshot, e: TierStoreBegun) -> TierSnapshot:
    pending = {chunk: TierChunk(h, "pending") for h, chunk in zip(e.block_hashes, e.chunks, strict=True)}
    return dataclasses.replace(
        _with(_begun(s, e, "store"), pending),
        num_used=max(s.num_used, *(chunk + 1 for chunk in e.chunks)),
        freed=tuple(chunk for chunk in s.freed if chunk not in e.chunks),
        recency=s.recency + e.block_hashes,
    )


def _store_finished(s: TierSnapshot, e: TierStoreFinished) -> TierSnapshot:
    return _with(_ended(s, e), {chunk: TierChunk(s.chunks[chunk].block_hash, "ready") for chunk in e.chunks})


def _store_given_up(s: TierSnapshot, e: TierStoreFailed | TierStoreCancelled) -> TierSnapshot:
    kept = dataclasses.replace(_ended(s, e), recency=_without(s.recency, e.block_hashes))
    return _with(kept, {}, freed=e.chunks)


def _pinned(s: TierSnapshot, chunks: tuple[int, ...], by: int) -> dict[int, TierChunk]:
    changed = {}
    for chunk in chunks:
        held = s.chunks[chunk]
        pins = held.pins + by
        # A failed chunk without pins is freed by the event.
        state = held.state if held.state == "failed" else "loading" if pins else "ready"
        changed[chunk] = dataclasses.replace(held, state=state, pins=pins)
    return changed


def _load_begun(s: TierSnapshot, e: TierLoadBegun) -> TierSnapshot:
    return _with(_begun(s, e, "load"), _pinned(s, e.chunks, 1))


def _load_ended(s: TierSnapshot, e: TierLoadEnded) -> TierSnapshot:
    return _with(_ended(s, e), _pinned(s, e.chunks, -1), e.freed)


def _load_failed(s: TierSnapshot, e: TierLoadFailed) -> TierSnapshot:
    lost = [h for h, chunk in zip(e.block_hashes, e.chunks, strict=True) if s.chunks[chunk].state != "failed"]
    failed = {chunk: dataclasses.replace(s.chunks[chunk], state="failed") for chunk in e.chunks}
    return _load_ended(dataclasses.replace(_with(s, failed), recency=_without(s.recency, lost)), e)


_CHANGES: dict[type[TierEvent], Callable[[TierSnapshot, Any], TierSnapshot]] = {
    TierEvicted: _evicted,
    TierTouched: _touched,
    TierStoreBegun: _store_begun,
    TierStoreFinished: _store_finished,
    TierStoreFailed: _store_given_up,
    TierStoreCancelled: _store_given_up,
    TierLoadBegun: _load_begun,
    TierLoadFinished: _load_ended,
    TierLoadFailed: _load_failed,
    TierLoadCancelled: _load_ended,
}
