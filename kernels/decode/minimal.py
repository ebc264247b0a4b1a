"""PagedAttention in one small kernel, to be read before the others: no window, no scales, no softcap, no splits.

    out = softmax(q K^T * scale) V, token t of a sequence lying in block block_table[t // block_size] at t % block_size

One program attends for one query head of one sequence. It takes the blocks of the sequence one after another and keeps
three things: the largest score so far, the sum of the weights, and the weighted sum of the values (FlashAttention's
online softmax). `kernel.py` computes the same, fast.
"""

# Triton kernels are untyped by nature; the launchers are not.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import launch
from kernels.checks import attention


@triton.jit
def minimal_decode_kernel(
    out,  # [num_seqs, num_heads, head_dim] float32
    q,  # [num_seqs, num_heads, head_dim]
    k_cache,  # [num_blocks, block_size, num_kv_heads, head_dim]
    v_cache,  # [num_blocks, block_size, num_kv_heads, head_dim]
    block_tables,  # [num_seqs, max_blocks]
    seq_lens,  # [num_seqs]
    max_blocks,
    scale,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    # An id times the size of a block passes 2^31 in any large cache, so ids are int64.
    seq, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    kv_head = head // (NUM_HEADS // NUM_KV_HEADS)  # several query heads share a KV head
    dim, offset = tl.arange(0, HEAD_DIM), tl.arange(0, BLOCK_SIZE)
    row = (seq * NUM_HEADS + head) * HEAD_DIM + dim
    query = tl.load(q + row).to(tl.float32) * scale

    running_max = -float("inf")  # m in the papers
    running_sum = 0.0  # l in the papers
    acc = tl.zeros([HEAD_DIM], tl.float32)
    seq_len = tl.load(seq_lens + seq)
    for i in range(tl.cdiv(seq_len, BLOCK_SIZE)):
        # This line makes the attention paged: the table says where in memory the i-th block of the sequence lies.
        block = tl.load(block_tables + seq * max_blocks + i).to(tl.int64)
        # The last block may be partly full. Its other slots are not read: NaN may lie there, and 0 * NaN is NaN.
        mine = i * BLOCK_SIZE + offset < seq_len
        slot = block * BLOCK_SIZE + offset
        at = (slot[:, None] * NUM_KV_HEADS + kv_head) * HEAD_DIM + dim[None, :]
        key = tl.load(k_cache + at, mask=mine[:, None], other=0.0).to(tl.float32)
        value = tl.load(v_cache + at, mask=mine[:, None], other=0.0).to(tl.float32)

        score = tl.where(mine, tl.sum(key * query[None, :], 1), -float("inf"))
        new_max = tl.maximum(running_max, tl.max(score, 0))
        weight = tl.exp(score - new_max)  # at most 1, so it cannot overflow
        shrink = tl.exp(running_max - new_max)  # brings what was summed before to the new maximum
        running_sum = running_sum * shrink + tl.sum(weight, 0)
        acc = acc * shrink + tl.sum(weight[:, None] * value, 0)
        running_max = new_max
    # An empty sequence has summed nothing: 0 / 1 gives zeros, where 0 / 0 would give NaN.
    tl.store(out + row, acc / tl.where(running_sum == 0.0, 1.0, running_sum))


def minimal_decode(q: Tensor, k_cache: Tensor, v_cache: Tensor, block_tables: Tensor, seq_lens: Tensor) -> Tensor:
    """Attend from one new token per sequence to all its cached tokens, wherever their blocks lie.

    q [num_seqs, num_heads, head_dim], float32, float16 or bfloat16. k_cache, v_cache [num_blocks, block_size,
    num_kv_heads, head_dim] of the same dtype; query head h reads KV head h // (num_heads // num_kv_heads). block_tables
    [num_seqs, max_blocks] and seq_lens [num_seqs], int32 or int64: entries past ceil(seq_len / block_size) are never
    followed. All contiguous; block_size and head_dim powers of two. The scale is 1 / sqrt(head_dim).

    Returns a new tensor like q; a sequence of length 0 gives zeros. Raises ValueError where `paged_decode` does, and on
    tensors that are not contiguous and sizes that are not powers of two.

    Example: block_table=[7, 2], seq_len=6, block_size=4 -> tokens 0 to 3 in block 7, 4 and 5 at offsets 0 and 1 of 2.
    Source: Kwon et al., PagedAttention, arXiv 2309.06180; Milakov and Gimelshein, online softmax, arXiv 1805.02867.
    """
    attention.minimal_decode(q, k_cache, v_cache, block_tables, seq_lens)
    (num_seqs, num_heads, head_dim), (_, block_size, num_kv_heads, _) = q.shape, k_cache.shape
    out = torch.empty(q.shape, dtype=torch.float32, device=q.device)
    with launch.launching(q):
        minimal_decode_kernel[num_seqs, num_heads](
            *(out, q, k_cache, v_cache, block_tables, seq_lens, block_tables.shape[1], head_dim**-0.5),
            NUM_HEADS=num_heads,
            NUM_KV_HEADS=num_kv_heads,
            HEAD_DIM=head_dim,
            BLOCK_SIZE=block_size,
        )
    return out.to(q.dtype)
