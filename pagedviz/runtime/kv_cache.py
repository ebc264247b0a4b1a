"""The tensors: K and V of every layer, in blocks, on the device and on the host. An event moves what it says."""

from collections.abc import Sequence

import torch
from torch import Tensor

import kernels
from pagedviz.engine.events import BlockCopied, BlockFreed, BlockReloaded, BlockSpilled, Event
from pagedviz.engine.snapshot import Snapshot
from pagedviz.scenario import CacheConfig

POISON = float("nan")  # what a slot holds that nobody owns: whoever reads it is found out


class KVCache:
    """`k` and `v` are [num_layers, num_blocks, block_size, num_kv_heads, head_dim] float32 on the device; `host_k` and
    `host_v` the same on the host, with host_blocks blocks. One block id is the same slab in every layer."""

    def __init__(self, cache: CacheConfig, device: torch.device) -> None:
        def blocks(count: int, where: torch.device, pinned: bool = False) -> Tensor:
            shape = (cache.num_layers, count, cache.block_size, cache.num_kv_heads, cache.head_dim)
            return torch.full(shape, POISON, device=where, pin_memory=pinned)

        host, pinned = torch.device("cpu"), device.type == "cuda"
        self.device = device
        self.k, self.v = blocks(cache.num_blocks, device), blocks(cache.num_blocks, device)
        self.host_k, self.host_v = blocks(cache.host_blocks, host, pinned), blocks(cache.host_blocks, host, pinned)

    def store(self, layer: int, k: Tensor, v: Tensor, slots: Sequence[int] | Tensor) -> None:
        """Write each token's k and v [num_tokens, num_kv_heads, head_dim] into its slot [num_tokens] of one layer."""
        kernels.store_kv(k, v, self.k[layer], self.v[layer], torch.as_tensor(slots, device=self.device))

    def apply(self, event: Event) -> None:
        """Do to the tensors what the event says. What nobody owns afterwards is poisoned."""
        match event:
            case BlockCopied():
                for k, v in zip(self.k, self.v, strict=True):
                    kernels.copy_blocks(k, v, [event.source], [event.target])
            case BlockSpilled():
                for device, host in ((self.k, self.host_k), (self.v, self.host_v)):
                    for layer in range(len(device)):
                        host[layer, event.host_block].copy_(kernels.gather_blocks(device[layer], [event.block])[0])
                    device[:, event.block] = POISON
            case BlockReloaded():
                for device, host in ((self.k, self.host_k), (self.v, self.host_v)):
                    for layer in range(len(device)):
                        values = host[layer, event.host_block].to(self.device)
                        kernels.scatter_blocks(device[layer], [event.block], values[None])
                    host[:, event.host_block] = POISON
            case BlockFreed():
                k, v = (self.k, self.v) if event.where == "device" else (self.host_k, self.host_v)
                k[:, event.block] = POISON
                v[:, event.block] = POISON

    def read(self, snapshot: Snapshot, seq_id: str) -> tuple[Tensor, Tensor]:
        """A sequence's K and V through its table, block by block, wherever each block is.

        Returns two tensors [num_layers, seq_len, num_kv_heads, head_dim] on the device.
        """
        rows = zip(snapshot.block_tables[seq_id], snapshot.host_tables[seq_id], strict=True)
        places = [(self.k, self.v, b) if b is not None else (self.host_k, self.host_v, h) for b, h in rows]
        seq_len = snapshot.seq_len(seq_id)
        k = torch.cat([k[:, block].to(self.device) for k, _, block in places], dim=1)[:, :seq_len]
        v = torch.cat([v[:, block].to(self.device) for _, v, block in places], dim=1)[:, :seq_len]
        return k, v

    def unpoisoned(self, snapshot: Snapshot) -> list[str]:
        """A sentence for each block that holds a number in a slot that nobody owns."""
        wrong = []
        for where, k, v, tables in (
            ("device", self.k, self.v, snapshot.block_tables),
            ("host", self.host_k, self.host_v, snapshot.host_tables),
        ):
            owned = torch.zeros(k.shape[1:3], dtype=torch.bool)
            for seq_id, row in tables.items():
                for j, block in enumerate(row):
                    if block is not None:
                        owned[block, : snapshot.filled(seq_id, j)] = True
            poisoned = (k.isnan() & v.isnan()).all(dim=4).all(dim=3).all(dim=0).cpu()
            for block in (~owned & ~poisoned).any(dim=1).nonzero().flatten().tolist():
                if where == "host" or block not in snapshot.pinned:
                    wrong.append(f"poison: {where} block {block} holds a number in a slot that nobody owns")
        return wrong
