"""Attention of many new tokens at once to the keys and values that the block tables point at."""

from torch import Tensor

from kernels import reference_prefill


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
    """Attend from the newest tokens of each sequence, as many as it brings, each to itself and all tokens before it.

    q [num_tokens, num_heads, head_dim], the sequences' new tokens one after another: those of sequence i are rows
    query_start_loc[i] to query_start_loc[i + 1]; query_start_loc [num_seqs + 1] int32 or int64, from 0 on, never
    falling. Their keys and values must be stored already, and `seq_lens` counts them: of query_len new tokens, token j
    sees the keys up to and including seq_len - query_len + j. A query that sees no key gives zeros, and so do the rows
    of q after the last sequence's. The other arguments are those of `kernels.paged_decode`: strides, dtypes, the
    entries of block_tables that are never followed, `scale`, `window`, `softcap`, 8-bit caches and their scales, and
    `tokens_per_tile`.

    Returns a new tensor like q. Raises ValueError on shapes, head counts, dtypes or devices that do not fit, and on the
    CPU on block ids outside the cache, lengths past the table, and a query_start_loc that falls or ends after q.

    Example: query_start_loc=[0, 3, 4], seq_lens=[3, 9] -> rows 0 to 2 are a whole prompt of 3, and row 3 a decode step.
    Source: Kwon et al., PagedAttention, arXiv 2309.06180; Dao, FlashAttention-2, arXiv 2307.08691.
    """
    # The plain twin computes on every backend until the kernel arrives.
    return reference_prefill.paged_prefill(
        q,
        k_cache,
        v_cache,
        block_tables,
        seq_lens,
        query_start_loc,
        scale,
        window=window,
        softcap=softcap,
        k_scale=k_scale,
        v_scale=v_scale,
        tokens_per_tile=tokens_per_tile,
    )
