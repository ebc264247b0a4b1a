"""Copies of blocks between the device and the host, while the computation goes on.

On a GPU one stream of their own makes all copies, in the order of the calls, each after everything that was launched
before its call. Two rules keep every block whole. Only that stream writes host memory, and the CPU waits before it
reads there (`wait_for_host`). A device block is in flight while the stream may still read or fill it: before a launch
that touches the block, `claim` makes the computation wait for this block and for no other. On a CPU the same lines do
the same work at once.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

import kernels


class Transfers:
    """Moves and copies the blocks of `device`: [num_slabs, num_blocks, block_size, num_kv_heads, head_dim].

    A slab is K or V of one layer: a block is moved in all slabs at once. `host` has the same shape with num_host_blocks
    blocks; in memory all slabs of a block are side by side, pinned if there is a GPU. If `poison` is given, it fills
    host memory at first, a device block after its spill, and a host block after its reload. A store and a load change
    nothing in the block that they copy. A call is in order with the stream that is current when it is made.
    """

    def __init__(self, device: Tensor, num_host_blocks: int, poison: float | None = None) -> None:
        num_slabs, _, *block = device.shape
        memory = torch.zeros(num_host_blocks, num_slabs, *block, dtype=device.dtype, pin_memory=device.is_cuda)
        if poison is not None:
            memory.fill_(poison)
        self.device, self.host, self.poison = device, memory.transpose(0, 1), poison
        self.stream: torch.cuda.Stream | None = None
        self.in_flight: dict[int, torch.cuda.Event] = {}
        if device.is_cuda:
            self.stream = torch.cuda.Stream(device.device)  # type: ignore[no-untyped-call]
            # If the memory is freed while the stream still works on it, torch does not reuse it before the stream is
            # done.
            device.record_stream(self.stream)

    def spill(self, blocks: Sequence[int], host_blocks: Sequence[int]) -> None:
        """Move each block to a host block. The device blocks may be used again as soon as they have been gathered."""
        self._out(blocks, host_blocks, leaves=True)

    def store(self, blocks: Sequence[int], host_blocks: Sequence[int]) -> None:
        """Copy each block to a host block. The device block stays as it is."""
        self._out(blocks, host_blocks, leaves=False)

    def reload(self, host_blocks: Sequence[int], blocks: Sequence[int]) -> None:
        """Move each host block into a device block. The next spill may overwrite the host blocks."""
        with self._beside():
            self._back(host_blocks, blocks)
            self._poison_host(host_blocks)

    def load(self, host_blocks: Sequence[int], blocks: Sequence[int]) -> None:
        """Copy each host block into a device block. The host block stays as it is."""
        with self._beside():
            self._back(host_blocks, blocks)

    def forget(self, host_blocks: Sequence[int]) -> None:
        """Poison host blocks that are unowned from now on, after all copies from and to them."""
        with self._beside():
            self._poison_host(host_blocks)

    def claim(self, blocks: Iterable[int] | None = None) -> None:
        """Make the current stream wait until these blocks (None: all) are copied; the CPU does not wait."""
        for block in list(self.in_flight) if blocks is None else blocks:
            event = self.in_flight.pop(block, None)
            if event is not None:
                torch.cuda.current_stream(self.device.device).wait_event(event)

    def wait_for_host(self) -> None:
        """Make the CPU wait until all copies are done: before it reads host memory."""
        if self.stream is not None:
            self.stream.synchronize()

    def _out(self, blocks: Sequence[int], host_blocks: Sequence[int], leaves: bool) -> None:
        with self._beside():
            pairs = sorted(zip(host_blocks, blocks, strict=True))
            packed = kernels.gather_blocks(self._flat(), self._rows([block for _, block in pairs]))
            if leaves and self.poison is not None:
                for block in blocks:
                    self.device[:, block] = self.poison
            self._mark(blocks)
            for memory, part in self._side_by_side([block for block, _ in pairs], packed):
                memory.copy_(part, non_blocking=True)

    def _back(self, host_blocks: Sequence[int], blocks: Sequence[int]) -> None:
        pairs = sorted(zip(host_blocks, blocks, strict=True))
        packed = self.device.new_empty(len(blocks) * len(self.device), *self.device.shape[2:])
        for memory, part in self._side_by_side([block for block, _ in pairs], packed):
            part.copy_(memory, non_blocking=True)
        kernels.scatter_blocks(self._flat(), self._rows([block for _, block in pairs]), packed)
        self._mark(blocks)

    def _beside(self) -> AbstractContextManager[object]:
        """Launch what is inside on the transfer stream, after everything that the current stream has been given so far.

        A staging buffer made inside belongs to that stream and is used on no other. So Python may drop it before the
        stream has read it.
        """
        if self.stream is None:
            return nullcontext()
        self.stream.wait_stream(torch.cuda.current_stream(self.device.device))
        return torch.cuda.stream(self.stream)

    def _mark(self, blocks: Sequence[int]) -> None:
        if self.stream is not None:
            self.in_flight |= dict.fromkeys(blocks, self.stream.record_event())

    def _poison_host(self, host_blocks: Sequence[int]) -> None:
        if self.poison is not None:
            # On the stream: the CPU would have to wait for the earlier copies.
            poison = torch.full_like(self.device[:, 0], self.poison)
            for block in host_blocks:
                self.host[:, block].copy_(poison, non_blocking=True)

    def _flat(self) -> Tensor:
        """All slabs as one cache; `_rows` gives the ids of its blocks."""
        return self.device.view(-1, *self.device.shape[2:])

    def _rows(self, blocks: Sequence[int]) -> Tensor:
        """Block ids in the flat cache, in the order of `blocks`, for each block one id a slab."""
        num_slabs, num_blocks = self.device.shape[:2]
        return (torch.tensor(blocks, dtype=torch.int64)[:, None] + torch.arange(num_slabs) * num_blocks).flatten()

    def _side_by_side(self, host_blocks: Sequence[int], packed: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Pairs of host memory and its part of the staging buffer: one pair for each run of consecutive host blocks."""
        num_slabs, start = len(self.device), 0
        for stop in range(1, len(host_blocks) + 1):
            if stop == len(host_blocks) or host_blocks[stop] != host_blocks[stop - 1] + 1:
                memory = self.host.transpose(0, 1)[host_blocks[start] : host_blocks[stop - 1] + 1]
                yield memory.flatten(0, 1), packed[start * num_slabs : stop * num_slabs]
                start = stop
