"""The time to get back the K and V of a preempted sequence: swapped out and in, plainly or staged, or computed again.

All of it is real: blocks in random order, the transfers of `runtime/cache/transfers.py`, the kernels, and the matrix
products of a decoder with random weights. The result of each way is checked before it is timed. Only `preemption_cost`
needs an NVIDIA GPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

import kernels
from pagedviz.runtime.measuring import swaps
from pagedviz.runtime.measuring.bandwidth import median_microseconds, relative_error
from pagedviz.runtime.measuring.swaps import CountedTransfers


@dataclass(frozen=True)
class Decoder:
    """The layers of a model that computes `num_tokens` tokens again. By default they have Llama 3 8B's shape."""

    num_tokens: int = 1024
    num_layers: int = 32
    hidden: int = 4096
    feed_forward: int = 14_336
    num_heads: int = 32
    num_kv_heads: int = 8
    head_dim: int = 128
    dtype: torch.dtype = torch.bfloat16


class PreemptionCase:
    """A sequence of `shape.num_tokens` tokens in blocks of `block_size`, which must divide them; `mine` are its blocks.

    The pool has as many more blocks, `others`, into which the sequence comes back. The host has room for it once, in
    consecutive blocks. All layers share one set of weights: the time of a layer does not depend on them, and they need
    1/num_layers of the memory.
    """

    def __init__(self, shape: Decoder, block_size: int, device: torch.device) -> None:
        self.shape, self.device = shape, device
        count = shape.num_tokens // block_size
        random = torch.Generator(device=device).manual_seed(0)

        def normal(*size: int) -> Tensor:
            return torch.randn(size, device=device, generator=random, dtype=shape.dtype)

        block = (block_size, shape.num_kv_heads, shape.head_dim)
        self.slabs = torch.zeros(2 * shape.num_layers, 2 * count, *block, device=device, dtype=shape.dtype)
        order = torch.randperm(2 * count, device=device, generator=random)
        self.mine, self.others = order[:count].tolist(), order[count:].tolist()
        self.host_blocks = list(range(count))
        self.transfers = CountedTransfers(self.slabs, count)
        self.k_cache, self.v_cache = self.slabs.chunk(2)

        q_width, kv_width = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        self.widths = [q_width, kv_width, kv_width]
        sizes = {
            "qkv": (shape.hidden, q_width + 2 * kv_width),
            "out": (q_width, shape.hidden),
            "up": (shape.hidden, 2 * shape.feed_forward),
            "down": (shape.feed_forward, shape.hidden),
        }
        self.weights = {name: normal(*size) * size[0] ** -0.5 for name, size in sizes.items()}
        self.embedded = normal(shape.num_tokens, shape.hidden)
        self.seq_lens = torch.tensor([shape.num_tokens], dtype=torch.int32, device=device)
        self.starts = torch.tensor([0, shape.num_tokens], dtype=torch.int32, device=device)
        offsets = torch.arange(block_size, device=device)
        self.slots = (order[:count, None] * block_size + offsets).flatten()
        self.table = order[None, :count].to(torch.int32)

    def compute(self) -> tuple[Tensor, Tensor]:
        """Prefill all tokens into `mine`: the last layer's queries and its attention, both [num_tokens, num_heads,
        head_dim].

        Without the embedding, the rotary positions and the logits, which take little time.
        """
        shape, x, w = self.shape, self.embedded, self.weights
        for k_cache, v_cache in zip(self.k_cache, self.v_cache, strict=True):
            parts = (rms_norm(x, (shape.hidden,)) @ w["qkv"]).split(self.widths, dim=1)
            q, k, v = (part.unflatten(1, (-1, shape.head_dim)) for part in parts)
            kernels.store_kv(k, v, k_cache, v_cache, self.slots)
            attended = kernels.paged_prefill(q, k_cache, v_cache, self.table, self.seq_lens, self.starts)
            x = x + attended.flatten(1) @ w["out"]
            gate, up = (rms_norm(x, (shape.hidden,)) @ w["up"]).chunk(2, dim=1)
            x = x + (silu(gate) * up) @ w["down"]
        return q, attended

    def swap_staged(self) -> None:
        """Swap out of `mine` and back into `others`, through one staging buffer in each direction."""
        self.transfers.spill(self.mine, self.host_blocks)
        self.transfers.reload(self.host_blocks, self.others)
        if self.transfers.stream is not None:
            torch.cuda.current_stream(self.device).wait_stream(self.transfers.stream)

    def pairs(self, blocks: Sequence[int]) -> list[swaps.Pair]:
        return swaps.one_by_one(self.slabs, blocks, self.transfers.host, self.host_blocks)

    def checked(self) -> dict[str, Any]:
        """Run each way once: the number of copies of each swap, and the distance from dense attention in float64.

        Raises AssertionError if a swap changed a bit.
        """
        q, attended = self.compute()
        wanted = self.slabs[:, self.mine].clone()
        k, v = (cache[-1, self.mine].flatten(0, 1) for cache in (self.k_cache, self.v_cache))
        error = relative_error(attended, kernels.dense_attention(q, k, v))
        copies = {}
        for name in ("plain", "staged"):
            self.slabs[:, self.others] = 0
            if name == "staged":
                self.swap_staged()
                copies[name] = self.transfers.copies
            else:
                leaving, landing = self.pairs(self.mine), self.pairs(self.others)
                swaps.out(leaving)
                swaps.back(landing)
                copies[name] = len(leaving) + len(landing)
            assert torch.equal(_bits(self.slabs[:, self.others]), _bits(wanted)), f"{name}: bits were lost"
            self.transfers.wait_for_host()
            self.transfers.host.zero_()
        return {"copies": copies["plain"], "staged": copies["staged"], "error": error}


def _bits(tensor: Tensor) -> Tensor:
    return tensor.view(torch.uint8)


def preemption_cost(block_sizes: Sequence[int], shape: Decoder | None = None) -> list[dict[str, Any]]:
    """Time all three ways at each block size on this machine's GPU: medians of times by events, after a warm-up.

    Returns a row for each block size, in order: "block_size"; "copies" and "staged", how many copies a swap out and in
    makes; "plain_ms", "staged_ms" and "recompute_ms", the last a prefill of the same tokens; "bytes" each way; "error"
    of the prefill's attention, relative to the largest value of float64 dense attention. Needs an NVIDIA GPU.
    """
    shape = shape or Decoder()
    rows = []
    for block_size in block_sizes:
        case = PreemptionCase(shape, block_size, torch.device("cuda"))
        found = case.checked()
        leaving, landing = case.pairs(case.mine), case.pairs(case.others)

        def swap_plainly(leaving: list[swaps.Pair] = leaving, landing: list[swaps.Pair] = landing) -> None:
            swaps.out(leaving)
            swaps.back(landing)

        times = {
            # Tens of thousands of copies a round, so a few rounds are enough.
            "plain_ms": median_microseconds(swap_plainly, rounds=3, warm_up=1) / 1000,
            "staged_ms": median_microseconds(case.swap_staged, rounds=9) / 1000,
            "recompute_ms": median_microseconds(case.compute, rounds=9) / 1000,
        }
        moved = sum(host.nbytes for _, host in leaving)
        rows.append({"block_size": block_size, "bytes": moved, **found, **times})
    return rows
