"""What every kernel means, in plain torch: read this first. It judges the kernels, and computes where Triton is not.

softmax(q K^T * scale) V, where the keys and values of a sequence lie in blocks that its block table lists in order:
token t of a sequence lives in block block_table[t // block_size], at offset t % block_size.
"""

import torch
from torch import Tensor

from kernels import check_attention, check_moves, check_options
from kernels.checks import Blocks

# What 8-bit numbers reach. int8 leaves -128 out, so that a number and its negative are kept alike.
LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}


def dense_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    *,
    window: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Attend in float64 over keys and values that lie side by side: the answer that paging must not change.

    q [num_queries, num_heads, head_dim]; k, v [num_keys, num_kv_heads, head_dim], any float dtype; query head h reads
    KV head h // (num_heads // num_kv_heads). The queries are the last tokens of the sequence: query i sees the keys up
    to and including num_keys - num_queries + i, and a query that sees none gives zeros. `scale` is 1 / sqrt(head_dim)
    unless given. With `window` W a query sees only the last W of those keys, itself among them; with `softcap` c a
    score s counts as c * tanh(s / c). Returns float64 [num_queries, num_heads, head_dim]. Raises ValueError on shapes
    that do not fit.
    """
    if q.ndim != 3 or k.ndim != 3 or k.shape != v.shape or q.shape[2] != k.shape[2] or q.shape[1] % k.shape[1]:
        raise ValueError(
            f"dense_attention: q is {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}; they must be "
            f"[num_queries, num_heads, head_dim] and twice [num_keys, num_kv_heads, head_dim], "
            f"num_heads a multiple of num_kv_heads"
        )
    num_queries, num_heads, head_dim = q.shape
    num_keys, num_kv_heads, _ = k.shape
    scale = head_dim**-0.5 if scale is None else scale
    k, v = (x.double().repeat_interleave(num_heads // num_kv_heads, dim=1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.double(), k) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    last_seen = torch.arange(num_queries, device=q.device) + num_keys - num_queries
    seen = torch.arange(num_keys, device=q.device) <= last_seen[:, None]
    if window is not None:
        seen &= torch.arange(num_keys, device=q.device) > last_seen[:, None] - window
    weights = scores.masked_fill(~seen, float("-inf")).softmax(dim=-1)
    out = torch.einsum("hqk,khd->qhd", weights, v)
    return out.masked_fill((last_seen < 0)[:, None, None], 0.0)


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
    check_attention.paged_decode(q, k_cache, v_cache, block_tables, seq_lens, tokens_per_tile)
    check_options.window_and_softcap("paged_decode", window, softcap)
    check_options.scales("paged_decode", k_cache, k_scale, v_scale)
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


def dequantized(cache: Tensor, scale: Tensor | None, block: int) -> Tensor:
    """Return a block of a cache in float32, [block_size, num_kv_heads, head_dim], each number times its scale.

    `scale` is float32 [num_kv_heads] or [num_blocks, block_size, num_kv_heads], or None for 1.
    """
    if scale is None:
        return cache[block].float()
    return cache[block].float() * (scale if scale.ndim == 1 else scale[block])[..., None]


def quantized(x: Tensor, dtype: torch.dtype, scale: Tensor | None) -> Tensor:
    """Return x [..., head_dim] / scale [...] as 8-bit numbers: to nearest even, saturating. A NaN is 0 in int8."""
    x = x.float() if scale is None else x.float() / scale[..., None]
    # One NaN for all: casts keep its sign, and not every division does.
    x = x.nan_to_num(nan=0.0 if dtype == torch.int8 else float("nan")).clamp(-LARGEST[dtype], LARGEST[dtype])
    return (x.round() if dtype == torch.int8 else x).to(dtype)


def scale_of(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the scale [...] under which the largest number of x [..., head_dim] is the dtype's; 1 for zeros."""
    largest = torch.where(x.isnan(), torch.inf, x.float().abs()).amax(-1)
    # By a tensor: by a number, a GPU would multiply by its reciprocal.
    scale = largest / torch.full_like(largest, LARGEST[dtype])
    return torch.where(scale >= torch.finfo(torch.float32).tiny, scale, 1.0)


def store_kv(
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slot_mapping: Tensor,
    *,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
) -> None:
    """Write each token's key and value into its slot. Shapes, errors and meaning are those of `kernels.store_kv`."""
    check_moves.store_kv(k, v, k_cache, v_cache, slot_mapping, k_scale, v_scale)
    for token, slot in enumerate(slot_mapping.tolist()):
        if slot < 0:
            continue
        block, offset = divmod(slot, k_cache.shape[1])
        for x, cache, scale in ((k[token], k_cache, k_scale), (v[token], v_cache, v_scale)):
            if scale is not None and scale.ndim == 3:
                scale[block, offset] = scale_of(x, cache.dtype)
                scale = scale[block, offset]
            cache[block, offset] = quantized(x, cache.dtype, scale) if cache.dtype in LARGEST else x


def copy_blocks(k_cache: Tensor, v_cache: Tensor, source_blocks: Blocks, target_blocks: Blocks) -> None:
    """Copy whole blocks, K and V. Shapes, errors and meaning are those of `kernels.copy_blocks`."""
    sources, targets = check_moves.copy_blocks(k_cache, v_cache, source_blocks, target_blocks)
    for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
        k_cache[target] = k_cache[source]
        v_cache[target] = v_cache[source]


def gather_blocks(cache: Tensor, blocks: Blocks, out: Tensor | None = None) -> Tensor:
    """Pack scattered blocks side by side. Shapes, errors and meaning are those of `kernels.gather_blocks`."""
    blocks, out = check_moves.gather_blocks(cache, blocks, out)
    for i, block in enumerate(blocks.tolist()):
        out[i] = cache[block]
    return out


def scatter_blocks(cache: Tensor, blocks: Blocks, values: Tensor) -> None:
    """Put packed blocks back. Shapes, errors and meaning are those of `kernels.scatter_blocks`."""
    for i, block in enumerate(check_moves.scatter_blocks(cache, blocks, values).tolist()):
        cache[block] = values[i]
