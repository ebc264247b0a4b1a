"""The tensors: K and V of every layer, in blocks, on the device and on the host. Events move blocks."""

from collections.abc import Collection, Iterable, Sequence

import torch
from torch import Tensor

import kernels
from pagedviz.engine.log.events.base import Event
from pagedviz.engine.log.events.blocks import BlockCollapsed, BlockCopied, BlockEvicted, BlockFreed
from pagedviz.engine.log.events.drafts import DraftsVerified
from pagedviz.engine.log.events.transfers import (
    BlockReloaded,
    BlockSpilled,
    TierEvicted,
    TierLoadBegun,
    TierLoadCancelled,
    TierLoadEnded,
    TierLoadFailed,
    TierStoreBegun,
    TierStoreCancelled,
    TierStoreFailed,
    TierTransferEnded,
)
from pagedviz.engine.log.events.windows import BlockOutOfWindow
from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.runtime.cache.transfers import Transfers
from pagedviz.scenario.settings import CacheConfig

POISON = float("nan")  # in every unowned slot: a kernel that reads one gives NaN, and the check fails


class KVCache:
    """`k` and `v` are [num_slabs, num_blocks, block_size, num_kv_heads, head_dim] float32 on the device; `host_k` and
    `host_v` the same on the host, with host_blocks blocks, and `chunk_k` and `chunk_v` with host_chunks.

    A block id names a block in every slab. Where all layers are one group each has a slab of its own; with G groups
    layer l is of group l % G and its slab is l // G, so a block holds K and V of its group's layers only.

    Blocks are copied between device and host while the computation goes on: `claim` device blocks before a kernel reads
    them."""

    def __init__(self, cache: CacheConfig, device: torch.device) -> None:
        block = (cache.block_size, cache.num_kv_heads, cache.head_dim)
        slabs = torch.full((2 * cache.layers_per_block, cache.num_blocks, *block), POISON, device=device)
        self.cache, self.device = cache, device
        self.transfers = Transfers(slabs, cache.host_blocks + cache.host_chunks, POISON)
        self.k, self.v = slabs.chunk(2)
        host_k, host_v = self.transfers.host.chunk(2)
        self.host_k, self.host_v = host_k[:, : cache.host_blocks], host_v[:, : cache.host_blocks]
        self.chunk_k, self.chunk_v = host_k[:, cache.host_blocks :], host_v[:, cache.host_blocks :]

    def of_layer(self, layer: int) -> tuple[Tensor, Tensor]:
        """K and V of one layer, each [num_blocks, block_size, num_kv_heads, head_dim]."""
        slab = layer // len(self.cache.windows)
        return self.k[slab], self.v[slab]

    def claim(self, blocks: Iterable[int]) -> None:
        """Make the computation wait until these blocks are whole on the device: before a kernel reads them."""
        self.transfers.claim(blocks)

    def store(self, layer: int, k: Tensor, v: Tensor, slots: Sequence[int] | Tensor) -> None:
        """Write each token's k and v [num_tokens, num_kv_heads, head_dim] into its slot of one layer; -1 is nowhere."""
        self.claim({int(slot) // self.cache.block_size for slot in slots})
        kernels.store_kv(k, v, *self.of_layer(layer), torch.as_tensor(slots, device=self.device))

    def apply(self, event: Event, cached: Collection[int] = ()) -> None:
        """Do to the tensors what the event says, and poison the slots that no sequence owns any more. The blocks
        `cached` may be hit after the event, so they keep their numbers."""
        match event:
            case BlockCopied():
                self.claim((event.source, event.target))
                for k, v in zip(self.k, self.v, strict=True):
                    kernels.copy_blocks(k, v, [event.source], [event.target])
            case BlockSpilled():
                self.transfers.spill([event.block], [event.host_block])
            case BlockReloaded():
                self.transfers.reload([event.host_block], [event.block])
            case BlockFreed(where="device", cached=False) | BlockEvicted(ref_count=0):
                self._poison(event.block)
            case BlockOutOfWindow(ref_count=0, cached=False):
                self._poison(event.block)
            case BlockCollapsed():
                self._poison(event.source)
            case BlockFreed(where="host"):
                self.transfers.forget([event.block])
            case DraftsVerified():
                for slot in event.slots:
                    self._poison(*divmod(slot, self.cache.block_size))
            case TierStoreBegun():
                self.transfers.store(event.device_blocks, self._places(event.chunks))
            case TierLoadBegun():
                self.transfers.load(self._places(event.chunks), event.device_blocks)
            case TierEvicted():
                self.transfers.forget(self._places([event.chunk]))
            case TierTransferEnded():
                self._end(event, cached)

    def _end(self, event: TierTransferEnded, cached: Collection[int]) -> None:
        """After a whole copy, poison the blocks that no sequence needs any more. After a failed or aborted one, poison
        also what it was to fill."""
        self.claim(event.device_blocks)
        match event:
            case TierStoreFailed() | TierStoreCancelled():
                self.transfers.forget(self._places(event.chunks))
            case TierLoadEnded():
                self.transfers.forget(self._places(event.freed))
        filled = isinstance(event, TierLoadFailed | TierLoadCancelled)
        for block, queue_index in zip(event.device_blocks, event.queue_indices, strict=False):
            if filled or (queue_index is not None and block not in cached):
                self._poison(block)

    def _places(self, chunks: Iterable[int]) -> list[int]:
        """Host blocks of these chunks: in memory the chunks follow the host pool's own blocks."""
        return [self.cache.host_blocks + chunk for chunk in chunks]

    def _poison(self, block: int, offset: int | slice = slice(None)) -> None:
        self.claim((block,))
        self.k[:, block, offset] = POISON
        self.v[:, block, offset] = POISON

    def settle(self) -> None:
        """Wait until all copies have ended: before the tensors themselves are read."""
        self.transfers.claim()
        self.transfers.wait_for_host()

    @property
    def num_bytes(self) -> int:
        """Bytes of all tensors, on the device and on the host."""
        return self.transfers.device.nbytes + self.transfers.host.nbytes

    def clone(self) -> "KVCache":
        """Another cache that holds the same numbers."""
        self.settle()
        other = KVCache(self.cache, self.device)
        other.transfers.device.copy_(self.transfers.device)
        other.transfers.host.copy_(self.transfers.host)
        return other

    def read(self, snapshot: Snapshot, seq_id: str, group: int = 0) -> tuple[Tensor, Tensor]:
        """A sequence's K and V through its table of one group, block by block, on the device or on the host.

        Returns two tensors [num_slabs, num_tokens, num_kv_heads, head_dim] on the device, of all its tokens, or of
        those for which the table has entries already.
        """
        row = snapshot.tables(group)[seq_id]
        host_row = snapshot.host_tables[seq_id] if group == 0 else (None,) * len(row)
        self.claim(block for block in row if block is not None)
        if any(block is not None for block in host_row):
            self.transfers.wait_for_host()
        rows = zip(row, host_row, strict=True)
        places = [(self.k, self.v, b) if b is not None else (self.host_k, self.host_v, h) for b, h in rows]
        seq_len = snapshot.seq_len(seq_id)
        k = torch.cat([k[:, block].to(self.device) for k, _, block in places], dim=1)[:, :seq_len]
        v = torch.cat([v[:, block].to(self.device) for _, v, block in places], dim=1)[:, :seq_len]
        return k, v

    def unpoisoned(self, snapshot: Snapshot) -> list[str]:
        """A sentence for each block that holds a number in an unowned slot."""
        self.settle()
        wrong = []
        for where, k, v in (
            ("device block", self.k, self.v),
            ("host block", self.host_k, self.host_v),
            ("host chunk", self.chunk_k, self.chunk_v),
        ):
            poisoned = (k.isnan() & v.isnan()).all(dim=4).all(dim=3).all(dim=0).cpu()
            for block in (~self._owned(where, snapshot) & ~poisoned).any(dim=1).nonzero().flatten().tolist():
                wrong.append(f"poison: {where} {block} holds a number in an unowned slot")
        return wrong

    def _owned(self, where: str, snapshot: Snapshot) -> Tensor:
        """Which slots of a memory may hold numbers: [num_blocks, block_size] bool."""
        kinds = {"device block": self.k, "host block": self.host_k, "host chunk": self.chunk_k}
        owned = torch.zeros(kinds[where].shape[1:3], dtype=torch.bool)
        if where == "host chunk":
            for chunk in snapshot.tier.chunks if snapshot.tier else ():
                owned[chunk] = True
            return owned
        if where == "device block":
            # A later sequence may hit the cached blocks; a copy may be reading or filling the pinned ones.
            for block in (*snapshot.cached, *snapshot.pinned):
                owned[block] = True
        for tables in snapshot.all_tables if where == "device block" else (snapshot.host_tables,):
            for seq_id, row in tables.items():
                # The first group releases its blocks first, and the tokens with them. The other groups' entries behind
                # those still own their whole blocks.
                named_first = len(snapshot.block_tables[seq_id])
                for j, named in enumerate(row):
                    if named is not None and (where != "device block" or named != snapshot.null_block):
                        owned[named, : snapshot.filled(seq_id, j) if j < named_first else None] = True
        return owned
