"""Blocks on their way between the device and the host, beside the computation.

On a GPU a stream of its own does all of it, in the order in which it was asked for, after whatever was launched before.
So two rules keep every block whole. Host memory is written by that stream only, and the CPU waits before it reads
(`wait_for_host`). A device block that the stream may still read or fill is in flight: whoever touches it next makes the
computation wait for it, and for nothing else (`claim`). On a CPU the same lines do the same work at once.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

import kernels


def host_blocks(num_blocks: int, like: Tensor, fill: float = 0.0) -> Tensor:
    """Make the host's side of a device tensor [num_layers, any, block_size, ...]: the same with num_blocks blocks.

    The layers of one block lie side by side, so that one copy moves them all, and pinned where a GPU is to reach them.
    """
    num_layers, _, *block = like.shape
    memory = torch.full((num_blocks, num_layers, *block), fill, dtype=like.dtype, pin_memory=like.is_cuda)
    return memory.transpose(0, 1)


class Transfers:
    """Spills and reloads blocks of the same tensors, each [num_layers, num_blocks, block_size, num_kv_heads, head_dim].

    `pairs` are contiguous tensors on the device with their side on the host (`host_blocks`). `poison`, if any, fills
    what a spill leaves behind on the device and a reload on the host. A call serves the stream that is current then.
    """

    def __init__(self, pairs: Sequence[tuple[Tensor, Tensor]], poison: float | None = None) -> None:
        self.pairs, self.poison = pairs, poison
        self.device = pairs[0][0].device
        self.stream: torch.cuda.Stream | None = (
            torch.cuda.Stream(self.device) if self.device.type == "cuda" else None  # type: ignore[no-untyped-call]
        )
        self.in_flight: dict[int, torch.cuda.Event] = {}
        if self.stream is not None:
            for device, _ in pairs:
                # Freed while the stream still works on it, the memory is not given away before the stream is done.
                device.record_stream(self.stream)

    def spill(self, blocks: Sequence[int], host: Sequence[int]) -> None:
        """Take each block of every layer to a host block. The blocks are free again when they have been gathered."""
        with self._beside():
            packed = [kernels.gather_blocks(_flat(device), self._rows(blocks)) for device, _ in self.pairs]
            if self.poison is not None:
                for device, _ in self.pairs:
                    for block in blocks:
                        device[:, block] = self.poison
            self._mark(blocks)
            for (_, memory), values in zip(self.pairs, packed, strict=True):
                for host_block, layers in zip(host, values.chunk(len(blocks)), strict=True):
                    memory[:, host_block].copy_(layers, non_blocking=True)

    def reload(self, host: Sequence[int], blocks: Sequence[int]) -> None:
        """Bring each host block back into a block of every layer. The next spill may overwrite the host blocks."""
        with self._beside():
            for device, memory in self.pairs:
                packed = torch.empty(len(blocks), *memory[:, 0].shape, dtype=device.dtype, device=self.device)
                for host_block, layers in zip(host, packed, strict=True):
                    layers.copy_(memory[:, host_block], non_blocking=True)
                kernels.scatter_blocks(_flat(device), self._rows(blocks), packed.flatten(0, 1))
            self._mark(blocks)
            self._poison_host(host)

    def forget(self, host: Sequence[int]) -> None:
        """Poison host blocks that nobody owns any more, after whatever still copies from or to them."""
        with self._beside():
            self._poison_host(host)

    def claim(self, blocks: Iterable[int] | None = None) -> None:
        """Make the current stream wait until these blocks (None: all) have left or arrived; the CPU does not wait."""
        for block in list(self.in_flight if blocks is None else blocks):
            event = self.in_flight.pop(block, None)
            if event is not None:
                torch.cuda.current_stream(self.device).wait_event(event)

    def wait_for_host(self) -> None:
        """Make the CPU wait until host memory is as it should be: before it reads any of it."""
        if self.stream is not None:
            self.stream.synchronize()

    def _beside(self) -> AbstractContextManager[object]:
        """Launch what is inside on the transfer stream, after all that the current stream was given before.

        Staging made inside belongs to that stream and is used on no other, so it may be dropped before it is read.
        """
        if self.stream is None:
            return nullcontext()
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        return torch.cuda.stream(self.stream)

    def _mark(self, blocks: Sequence[int]) -> None:
        if self.stream is not None:
            self.in_flight |= dict.fromkeys(blocks, self.stream.record_event())

    def _poison_host(self, host: Sequence[int]) -> None:
        if self.poison is None:
            return
        for _, memory in self.pairs:
            # On the stream, not by the CPU, which would have to wait for the copies before it.
            poison = torch.full_like(memory[:, 0], self.poison, device=self.device)
            for host_block in host:
                memory[:, host_block].copy_(poison, non_blocking=True)

    def _rows(self, blocks: Sequence[int]) -> list[int]:
        """Ids of the blocks in all layers, in a tensor whose layers follow one another: block by block."""
        num_layers, num_blocks = self.pairs[0][0].shape[:2]
        return [layer * num_blocks + block for block in blocks for layer in range(num_layers)]


def _flat(device: Tensor) -> Tensor:
    """All layers as one cache."""
    return device.view(-1, *device.shape[2:])
