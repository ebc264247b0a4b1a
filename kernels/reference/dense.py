"""Attention without paging, in float64: the answer that blocks and block tables must not change."""

import torch
from torch import Tensor


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
