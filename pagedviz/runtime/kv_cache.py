"""The tensors: K and V of every layer, in blocks, on the device and on the host. An event moves what it says."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

import kernels
from pagedviz.engine.events import (
    BlockCollapsed,
    BlockCopied,
    BlockEvicted,
    BlockFreed,
    BlockReloaded,
    BlockSpilled,
    Event,
)
from pagedviz.engine.snapshot import Snapshot
from pagedviz.runtime.transfers import Transfers
from pagedviz.scenario import CacheConfig

POISON = float("nan")  # what a slot holds that nobody owns: whoever reads it is found out


class KVCache:
    """`k` and `v` are [num_layers, num_blocks, block_size, num_kv_heads, head_dim] float32 on the device; `host_k` and
    `host_v` the same on the host, with host_blocks blocks. One block id is the same slab in every layer.

    Spills and reloads go on beside the computation: `claim` device blocks before a kernel reads them."""

    def __init__(self, cache: CacheConfig, device: torch.device) -> None:
        block = (cache.block_size, cache.num_kv_heads, cache.head_dim)
        slabs = torch.full((2 * cache.num_layers, cache.num_blocks, *block), POISON, device=device)
        self.cache, self.device = cache, device
        self.transfers = Transfers(slabs, cache.host_blocks, POISON)
        self.k, self.v = slabs.chunk(2)
        self.host_k, self.host_v = self.transfers.host.chunk(2)

    def claim(self, blocks: Iterable[int]) -> None:
        """Make the computation wait until these blocks are whole on the device: before a kernel reads them."""
        self.transfers.claim(blocks)

    def store(self, layer: int, k: Tensor, v: Tensor, slots: Sequence[int] | Tensor) -> None:
        """Write each token's k and v [num_tokens, num_kv_heads, head_dim] into its slot of one layer; -1 is nowhere."""
        self.claim({int(slot) // self.k.shape[2] for slot in slots})
        kernels.store_kv(k, v, self.k[layer], self.v[layer], torch.as_tensor(slots, device=self.device))

    def apply(self, event: Event) -> None:
        """Do to the tensors what the event says. What nobody owns and nobody may hit afterwards is poisoned."""
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
            case BlockCollapsed():
                self._poison(event.source)
            case BlockFreed(where="host"):
                self.transfers.forget([event.block])

    def _poison(self, block: int) -> None:
        self.claim((block,))
        self.k[:, block] = POISON
        self.v[:, block] = POISON

    def settle(self) -> None:
        """Wait until everything has left and arrived: before somebody looks at the tensors themselves."""
        self.transfers.claim()
        self.transfers.wait_for_host()

    @property
    def num_bytes(self) -> int:
        """Of all four tensors."""
        return 2 * (self.k.nbytes + self.host_k.nbytes)

    def clone(self) -> "KVCache":
        """Another cache that holds the same numbers."""
        self.settle()
        other = KVCache(self.cache, self.device)
        for name in ("k", "v", "host_k", "host_v"):
            getattr(other, name).copy_(getattr(self, name))
        return other

    def read(self, snapshot: Snapshot, seq_id: str) -> tuple[Tensor, Tensor]:
        """A sequence's K and V through its table, block by block, wherever each block is.

        Returns two tensors [num_layers, seq_len, num_kv_heads, head_dim] on the device.
        """
        self.claim(block for block in snapshot.block_tables[seq_id] if block is not None)
        if any(block is not None for block in snapshot.host_tables[seq_id]):
            self.transfers.wait_for_host()
        rows = zip(snapshot.block_tables[seq_id], snapshot.host_tables[seq_id], strict=True)
        places = [(self.k, self.v, b) if b is not None else (self.host_k, self.host_v, h) for b, h in rows]
        seq_len = snapshot.seq_len(seq_id)
        k = torch.cat([k[:, block].to(self.device) for k, _, block in places], dim=1)[:, :seq_len]
        v = torch.cat([v[:, block].to(self.device) for _, v, block in places], dim=1)[:, :seq_len]
        return k, v

    def unpoisoned(self, snapshot: Snapshot) -> list[str]:
        """A sentence for each block that holds a number in a slot that nobody owns."""
        self.settle()
        wrong = []
        for where, k, v, tables in (
            ("device", self.k, self.v, snapshot.block_tables),
            ("host", self.host_k, self.host_v, snapshot.host_tables),
        ):
            owned = torch.zeros(k.shape[1:3], dtype=torch.bool)
            if where == "device":
                owned[list(snapshot.cached)] = True  # whoever has their tokens may hit them
            for seq_id, row in tables.items():
                for j, block in enumerate(row):
                    if block is not None:
                        owned[block, : snapshot.filled(seq_id, j)] = True
            poisoned = (k.isnan() & v.isnan()).all(dim=4).all(dim=3).all(dim=0).cpu()
            for block in (~owned & ~poisoned).any(dim=1).nonzero().flatten().tolist():
                if where == "host" or block not in snapshot.pinned:
                    wrong.append(f"poison: {where} block {block} holds a number in a slot that nobody owns")
        return wrong
