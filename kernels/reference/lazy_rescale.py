"""The plain torch twin of `kernels.lazy_rescale`, and what both of them return and refuse."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from kernels.checks import arguments

# FlashAttention-4's choice: a weight may reach 2^8 before anything is scaled down.
THRESHOLD = 8.0


class LazyRescale(NamedTuple):
    """What one query found, and how often it scaled down what it had summed.

    out [head_dim], like q. m, l [turns] float32: after each turn, the maximum that the sums are scaled to, in powers of
    2, and the sum of weights. rescales [2] int32: how many were done; and how many were skipped, because the maximum
    grew, but was not above the one in use by more than the threshold.
    """

    out: Tensor
    m: Tensor
    l: Tensor  # noqa: E741
    rescales: Tensor

    @classmethod
    def unwritten(cls, q: Tensor, turns: int) -> "LazyRescale":
        """Return results for a query in which nothing has been written yet."""
        nan = torch.full((2 * turns + len(q),), math.nan, device=q.device)
        out, m, l = nan.split_with_sizes([len(q), turns, turns])  # noqa: E741
        return cls(out, m, l, torch.full((2,), -1, dtype=torch.int32, device=q.device))


def check(q: Tensor, k_cache: Tensor, v_cache: Tensor, block_table: Tensor, seq_len: int, threshold: float) -> None:
    """Refuse what `lazy_rescale` cannot attend to."""
    call = "lazy_rescale"
    if q.ndim != 1 or k_cache.ndim != 3 or k_cache.shape != v_cache.shape or k_cache.shape[2:] != q.shape:
        raise ValueError(
            f"{call}: q is {list(q.shape)}, k_cache {list(k_cache.shape)}, v_cache {list(v_cache.shape)}; they must be "
            "[head_dim] and twice [num_blocks, block_size, head_dim]"
        )
    arguments.tensors(call, q=q, k_cache=k_cache, v_cache=v_cache)
    arguments.indices(call, "block_table", block_table, (-1,), "[max_blocks]", k_cache)
    if not 1 <= seq_len <= len(block_table) * k_cache.shape[1]:
        raise ValueError(
            f"{call}: seq_len is {seq_len}; it must be 1 to {len(block_table) * k_cache.shape[1]}, the slots of "
            f"{len(block_table)} blocks"
        )
    if block_table.device.type == "cpu":
        followed = block_table[: -(-seq_len // k_cache.shape[1])]
        outside = followed[(followed < 0) | (followed >= len(k_cache))].tolist()
        if outside:
            raise ValueError(
                f"{call}: block_table names blocks {outside}; the cache has blocks 0 to {len(k_cache) - 1}"
            )
    if not 0 <= threshold <= 100:
        raise ValueError(f"{call}: threshold is {threshold}; it must be 0 to 100 powers of 2, or sums overflow")


def lazy_rescale(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_len: int,
    scale: float | None = None,
    *,
    threshold: float = THRESHOLD,
) -> LazyRescale:
    """Attend and rescale only when it must be. Shapes, errors and meaning are those of `kernels.lazy_rescale`."""
    check(q, k_cache, v_cache, block_table, seq_len, threshold)
    block_size = k_cache.shape[1]
    found = LazyRescale.unwritten(q, -(-seq_len // block_size))
    score_scale = (len(q) ** -0.5 if scale is None else scale) * math.log2(math.e)
    in_use = largest = -math.inf
    total, acc = torch.zeros((), device=q.device), torch.zeros(len(q), device=q.device)
    done = skipped = 0
    for turn in range(len(found.m)):
        block, mine = int(block_table[turn]), min(block_size, seq_len - turn * block_size)
        score = k_cache[block, :mine].float() @ q.float() * score_scale
        top = float(score.max())
        if top > in_use + threshold:
            shrink = 2.0 ** (in_use - top)
            acc, total, in_use = acc * shrink, total * shrink, top
            done += turn > 0
        elif top > largest:
            skipped += 1
        largest = max(largest, top)
        weight = torch.exp2(score - in_use)
        total = total + weight.sum()
        acc = acc + weight @ v_cache[block, :mine].float()
        found.m[turn], found.l[turn] = in_use, total
    found.out.copy_(acc / total)
    found.rescales.copy_(torch.tensor([done, skipped]))
    return found._replace(out=found.out.to(q.dtype))
