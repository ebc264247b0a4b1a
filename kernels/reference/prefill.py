"""What `paged_prefill` means, in plain torch: many queries of a sequence instead of one, else as in `decode.py`."""

import torch
from torch import Tensor

from kernels.checks import attention, options
from kernels.reference.eight_bits import dequantized


def paged_prefill(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    query_start_loc: Tensor,
    scale: float | None = None,
    *,
    window: int | None = None,
    softcap: float | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    tokens_per_tile: int | None = None,
) -> Tensor:
    """Attend from the newest tokens of each sequence to its keys and values, one block of its table after another.

    Shapes, errors and meaning are those of `kernels.paged_prefill`. Always takes one block at a time, for all queries
    of a sequence at once: `tokens_per_tile` is how a kernel cuts its work, and changes no result.
    """
    attention.paged_prefill(q, k_cache, v_cache, block_tables, seq_lens, query_start_loc, tokens_per_tile)
    options.window_and_softcap("paged_prefill", window, softcap)
    options.scales("paged_prefill", k_cache, k_scale, v_scale)
    num_tokens, num_heads, head_dim = q.shape
    _, block_size, num_kv_heads, _ = k_cache.shape
    scale = head_dim**-0.5 if scale is None else scale
    grouped = q.float().reshape(num_tokens, num_kv_heads, num_heads // num_kv_heads, head_dim)
    out = torch.zeros_like(grouped)
    starts = query_start_loc.tolist()
    for seq, seq_len in enumerate(seq_lens.tolist()):
        queries = grouped[starts[seq] : starts[seq + 1]]
        # The last key that each query sees: its own; below 0 for a query that has no key.
        last_seen = torch.arange(len(queries), device=q.device) + seq_len - len(queries)
        running_max = torch.full_like(queries[..., 0], float("-inf"))
        running_sum = torch.zeros_like(running_max)
        acc = torch.zeros_like(queries)
        # The first block that the first query's window shows, if not all of it.
        shown = 0 if window is None else max(0, seq_len - len(queries) - window + 1)
        for first in range(shown // block_size * block_size, seq_len if len(queries) else 0, block_size):
            block = int(block_tables[seq, first // block_size])
            mine = slice(max(0, shown - first), min(block_size, seq_len - first))
            token = torch.arange(first + mine.start, first + mine.stop, device=q.device)
            key = dequantized(k_cache, k_scale, block)[mine]
            value = dequantized(v_cache, v_scale, block)[mine]
            score = torch.einsum("qhgd,thd->qhgt", queries, key) * scale
            if softcap is not None:
                score = softcap * torch.tanh(score / softcap)
            seen = token <= last_seen[:, None]
            if window is not None:
                seen &= token > last_seen[:, None] - window
            score = score.masked_fill(~seen[:, None, None], float("-inf"))
            new_max = torch.maximum(running_max, score.amax(dim=-1))
            # A query that has seen nothing yet has -inf here, and -inf - -inf would be NaN.
            finite_max = new_max.masked_fill(new_max == float("-inf"), 0.0)
            weight = torch.exp(score - finite_max[..., None])
            shrink = torch.exp(running_max - finite_max)
            running_sum = running_sum * shrink + weight.sum(dim=-1)
            running_max = new_max
            acc = acc * shrink[..., None] + torch.einsum("qhgt,thd->qhgd", weight, value)
        nothing = (last_seen < 0)[:, None, None, None]
        out[starts[seq] : starts[seq + 1]] = (acc / running_sum[..., None]).masked_fill(nothing, 0.0)
    return out.reshape(q.shape).to(q.dtype)
