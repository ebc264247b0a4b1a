"""What a lens shows of `paged_decode`, turn by turn, and the plain torch twin of `kernels.paged_decode_lens`.

A turn is one block of one split of one sequence: the block's keys give scores, and m, l and acc take them in.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from kernels.checks import attention, options
from kernels.reference.eight_bits import dequantized
from kernels.sizes import MOST_SPLITS, padded


class Lens(NamedTuple):
    """What a decode gave, and what each turn of each program held; -1 and NaN where there was no such turn.

    out [num_seqs, num_heads, head_dim], like q: the attention itself, its splits joined.
    block int32 [num_seqs, num_kv_heads, num_splits, max_turns]: the physical block that the turn loaded.
    position int32 [num_seqs, num_kv_heads, num_splits, max_turns, lanes]: the token that a lane attended to, -1 where
    the lane was masked, as the lanes beyond block_size always are.
    score float32 [num_seqs, num_heads, num_splits, max_turns, lanes]: in powers of 2, -inf where masked.
    m, l float32 [num_seqs, num_heads, num_splits, max_turns]: running maximum and running sum after the turn.
    acc float32 [num_seqs, num_heads, num_splits, max_turns, head_dim]: after the turn, neither divided by l nor
    multiplied by a `v_scale` per head: both come after the last turn.
    lse float32 [num_seqs, num_splits, num_heads]: m + log2(l) of each split, -inf for a split without a token.
    partial float32 [num_seqs, num_splits, num_heads, head_dim]: each split's own attention, zeros without a token.
    """

    out: Tensor
    block: Tensor
    position: Tensor
    score: Tensor
    m: Tensor
    l: Tensor  # noqa: E741
    acc: Tensor
    lse: Tensor
    partial: Tensor


def unwritten(q: Tensor, k_cache: Tensor, block_tables: Tensor, num_splits: int, out_dtype: torch.dtype) -> Lens:
    """Return a lens of these shapes in which nothing has been written yet: -1 and NaN, outputs and all."""
    num_seqs, num_heads, head_dim = q.shape
    _, block_size, num_kv_heads, _ = k_cache.shape
    lanes = padded(block_size)
    max_turns = -(-block_tables.shape[1] // num_splits)

    def minus_ones(*shape: int) -> Tensor:
        return torch.full(shape, -1, dtype=torch.int32, device=q.device)

    def nans(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.full(shape, math.nan, dtype=dtype, device=q.device)

    of_kv_head, of_head = ((num_seqs, heads, num_splits, max_turns) for heads in (num_kv_heads, num_heads))
    return Lens(
        out=nans(*q.shape, dtype=out_dtype),
        block=minus_ones(*of_kv_head),
        position=minus_ones(*of_kv_head, lanes),
        score=nans(*of_head, lanes),
        m=nans(*of_head),
        l=nans(*of_head),
        acc=nans(*of_head, head_dim),
        lse=nans(num_seqs, num_splits, num_heads),
        partial=nans(num_seqs, num_splits, num_heads, head_dim),
    )


def check(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    window: int | None,
    softcap: float | None,
    k_scale: Tensor | None,
    v_scale: Tensor | None,
    num_splits: int,
) -> None:
    """Refuse what `paged_decode_lens` cannot show."""
    call = "paged_decode_lens"
    attention.queries(call, "num_seqs", q, k_cache, v_cache, None)
    attention.sequences(call, len(q), k_cache, block_tables, seq_lens)
    options.window_and_softcap(call, window, softcap)
    options.scales(call, k_cache, k_scale, v_scale)
    if not 1 <= num_splits <= MOST_SPLITS:
        raise ValueError(f"{call}: num_splits is {num_splits}; it must be 1 to {MOST_SPLITS}")


def paged_decode_lens(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    scale: float | None = None,
    *,
    window: int | None = None,
    softcap: float | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    num_splits: int = 1,
) -> Lens:
    """Attend block by block and keep what each turn held. Shapes, errors and meaning: `kernels.paged_decode_lens`."""
    check(q, k_cache, v_cache, block_tables, seq_lens, window, softcap, k_scale, v_scale, num_splits)
    lens = unwritten(q, k_cache, block_tables, num_splits, torch.float32)
    num_heads, head_dim = q.shape[1:]
    _, block_size, num_kv_heads, _ = k_cache.shape
    group = num_heads // num_kv_heads
    scale = head_dim**-0.5 if scale is None else scale
    # A scale per head is applied after the last turn.
    slot_v_scale = None if v_scale is None or v_scale.ndim == 1 else v_scale
    lanes = torch.arange(lens.position.shape[-1], device=q.device)
    for seq, seq_len in enumerate(seq_lens.tolist()):
        shown = max(0, seq_len - window) if window else 0
        blocks = range(shown // block_size, -(-seq_len // block_size))
        share = -(-len(blocks) // num_splits)
        grouped = q[seq].float().reshape(num_kv_heads, group, head_dim)
        for split in range(num_splits):
            running_max = torch.full((num_heads,), -math.inf, device=q.device)
            running_sum = torch.zeros(num_heads, device=q.device)
            acc = torch.zeros(num_heads, head_dim, device=q.device)
            for turn, logical_block in enumerate(blocks[split * share : (split + 1) * share]):
                block = int(block_tables[seq, logical_block])
                token = logical_block * block_size + lanes
                mine = (lanes < block_size) & (token >= shown) & (token < seq_len)
                at = lanes[mine]
                key = dequantized(k_cache, k_scale, block)[at]
                raw = torch.einsum("hgd,thd->hgt", grouped, key).reshape(num_heads, -1) * scale
                bent = raw if softcap is None else softcap * torch.tanh(raw / softcap)
                score = torch.full((num_heads, len(lanes)), -math.inf, device=q.device)
                score[:, mine] = bent * math.log2(math.e)
                new_max = torch.maximum(running_max, score.amax(dim=-1))
                weight = torch.exp2(score[:, mine] - new_max[:, None])
                shrink = torch.exp2(running_max - new_max)
                running_max, running_sum = new_max, running_sum * shrink + weight.sum(dim=-1)
                value = dequantized(v_cache, slot_v_scale, block)[at]
                weighed = torch.einsum("hgt,thd->hgd", weight.reshape(num_kv_heads, group, -1), value)
                acc = acc * shrink[:, None] + weighed.reshape(num_heads, head_dim)

                lens.block[seq, :, split, turn] = block
                lens.position[seq, :, split, turn] = torch.where(mine, token, -1)
                for name, held in (("score", score), ("m", running_max), ("l", running_sum), ("acc", acc)):
                    getattr(lens, name)[seq, :, split, turn] = held
            lens.lse[seq, split] = running_max + torch.log2(running_sum)
            lens.partial[seq, split] = acc / torch.where(running_sum == 0.0, 1.0, running_sum)[:, None]
    if v_scale is not None and v_scale.ndim == 1:
        lens.partial.mul_(v_scale.repeat_interleave(group)[:, None])
    largest = lens.lse.amax(dim=1, keepdim=True)
    share_of_split = torch.exp2(lens.lse - torch.where(largest == -math.inf, 0.0, largest))[..., None]
    total = share_of_split.sum(dim=1)
    lens.out.copy_((lens.partial * share_of_split).sum(dim=1) / torch.where(total == 0.0, 1.0, total))
    return lens._replace(out=lens.out.to(q.dtype))
