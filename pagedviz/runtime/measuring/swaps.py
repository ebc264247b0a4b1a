"""Two ways to swap whose copies can be counted: each block of each slab by itself, or gathered, as `Transfers` does."""

from collections.abc import Iterator, Sequence

from torch import Tensor

from pagedviz.runtime.cache.transfers import Transfers

Pair = tuple[Tensor, Tensor]  # the same block of the same slab: on the device, on the host


class CountedTransfers(Transfers):
    """Transfers that count their copies between host and device: `copies`, and the `bytes` of all of them."""

    copies = 0
    bytes = 0

    def _side_by_side(self, host_blocks: Sequence[int], packed: Tensor) -> Iterator[Pair]:
        for memory, part in super()._side_by_side(host_blocks, packed):
            self.copies += 1
            self.bytes += memory.nbytes
            yield memory, part


def one_by_one(device: Tensor, blocks: Sequence[int], host: Tensor, host_blocks: Sequence[int]) -> list[Pair]:
    """The copies of a swap that gathers nothing: a pair for each block in each slab.

    device [num_slabs, num_blocks, block_size, num_kv_heads, head_dim]; host the same with its own number of blocks.
    The pairs are views.

    Example: K and V of two layers, three blocks -> 4 × 3 pairs.
    """
    moving = list(zip(blocks, host_blocks, strict=True))
    return [(device[slab, block], host[slab, to]) for slab in range(len(device)) for block, to in moving]


def out(pairs: Sequence[Pair]) -> None:
    """Copy from the device to the host."""
    for device, host in pairs:
        host.copy_(device, non_blocking=True)


def back(pairs: Sequence[Pair]) -> None:
    """Copy from the host to the device."""
    for device, host in pairs:
        device.copy_(host, non_blocking=True)
