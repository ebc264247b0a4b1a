"""torch's scaled_dot_product_attention over dense, contiguous K and V: the time of attention without paging.

It is cuDNN's kernel, which aligns the causal mask at the first token. If new tokens follow cached ones, it is
FlashAttention-2's.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right

from benchmarks.peers.absent import Absent
from pagedviz.runtime.measuring.bandwidth import Launch

NAME = "cuDNN, dense"
TIMED = "graph"


def version() -> str:
    return f"{torch.backends.cudnn.version()}, torch {torch.__version__}"


def _dense(cache: Tensor, tables: Tensor, seq_lens: Tensor) -> Tensor:
    """[num_seqs, num_kv_heads, seq_len, head_dim], contiguous."""
    lens = seq_lens.unique()
    if len(lens) > 1:
        raise Absent("dense batches have sequences of one length")
    return cache[tables.long()].flatten(1, 2)[:, : int(lens)].transpose(1, 2).contiguous()


def decode(q: Tensor, k: Tensor, v: Tensor, tables: Tensor, seq_lens: Tensor, **scales: Tensor) -> list[Launch]:
    if scales:
        raise Absent("no 8-bit K and V")

    def prepared(query: Tensor, table: Tensor) -> Launch:
        keys, values = _dense(k, table, seq_lens), _dense(v, table, seq_lens)

        def launch() -> Tensor:
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return F.scaled_dot_product_attention(query[:, :, None], keys, values, enable_gqa=True)[:, :, 0]

        return launch

    return [prepared(query, table) for query, table in zip(q, tables, strict=True)]


def prefill(
    q: Tensor, k: Tensor, v: Tensor, tables: Tensor, seq_lens: Tensor, query_start_loc: Tensor, **scales: Tensor
) -> list[Launch]:
    if scales:
        raise Absent("no 8-bit K and V")
    new = query_start_loc.diff().unique()
    if len(new) > 1:
        raise Absent("dense batches have sequences of one length")

    def prepared(query: Tensor, table: Tensor) -> Launch:
        keys, values = _dense(k, table, seq_lens), _dense(v, table, seq_lens)
        query = query.view(len(seq_lens), int(new), *query.shape[1:]).transpose(1, 2)
        square = keys.shape[2] == query.shape[2]
        backend = SDPBackend.CUDNN_ATTENTION if square else SDPBackend.FLASH_ATTENTION
        mask = None if square else causal_lower_right(query.shape[2], keys.shape[2])

        def launch() -> Tensor:
            with sdpa_kernel(backend):
                out = F.scaled_dot_product_attention(query, keys, values, mask, is_causal=square, enable_gqa=True)
            return out.transpose(1, 2).flatten(0, 1)

        return launch

    return [prepared(query, table) for query, table in zip(q, tables, strict=True)]
