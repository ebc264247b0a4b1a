"""What every kernel that attends means, in plain torch: read this first.

softmax(q K^T * scale) V, where the keys and values of a sequence lie in blocks that its block table lists in order:
token t of a sequence lies in block block_table[t // block_size], at offset t % block_size.
"""

import torch
from torch import Tensor

from kernels.checks import attention, options
from kernels.reference.eight_bits import dequantized


def paged_decode(
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
    tokens_per_tile: int | None = None,
) -> Tensor:
    """Attend from one new token per sequence to its keys and values, one block of its block table after another.

    Shapes, errors and meaning are those of `kernels.paged_decode`. Always takes one block at a time: `tokens_per_tile`
    is how a kernel cuts its work, and changes no result.

    When a block brings a larger score, what was summed before is scaled down to it; the papers call the running maximum
    m and the running sum l (Milakov and Gimelshein, arXiv 1805.02867).
    """
    attention.paged_decode(q, k_cache, v_cache, block_tables, seq_lens, tokens_per_tile)
    options.window_and_softcap("paged_decode", window, softcap)
    options.scales("paged_decode", k_cache, k_scale, v_scale)
    num_seqs, num_heads, head_dim = q.shape
    _, block_size, num_kv_heads, _ = k_cache.shape
    scale = head_dim**-0.5 if scale is None else scale
    grouped = q.float().reshape(num_seqs, num_kv_heads, num_heads // num_kv_heads, head_dim)
    out = torch.zeros_like(grouped)
    for seq, seq_len in enumerate(seq_lens.tolist()):
        running_max = torch.full_like(grouped[seq, :, :, 0], float("-inf"))
        running_sum = torch.zeros_like(running_max)
        acc = torch.zeros_like(out[seq])
        # The first block that the window shows, if not all of it.
        shown = 0 if window is None else max(0, seq_len - window) // block_size * block_size
        for first in range(shown, seq_len, block_size):
            block = int(block_tables[seq, first // block_size])
            mine = min(block_size, seq_len - first)
            key = dequantized(k_cache, k_scale, block)[:mine]
            value = dequantized(v_cache, v_scale, block)[:mine]
            score = torch.einsum("hgd,thd->hgt", grouped[seq], key) * scale
            if softcap is not None:
                score = softcap * torch.tanh(score / softcap)
            hidden = 0 if window is None else max(0, seq_len - window - first)
            score[:, :, :hidden] = float("-inf")
            new_max = torch.maximum(running_max, score.amax(dim=-1))
            weight = torch.exp(score - new_max[..., None])
            shrink = torch.exp(running_max - new_max)
            running_sum = running_sum * shrink + weight.sum(dim=-1)
            running_max = new_max
            acc = acc * shrink[..., None] + torch.einsum("hgt,thd->hgd", weight[:, :, hidden:], value[hidden:])
        if seq_len > 0:
            out[seq] = acc / running_sum[..., None]
    return out.reshape(q.shape).to(q.dtype)
