"""The one launch of the decode kernel: what it needs worked out from the tensors, for `paged_decode` and its lens."""

import math

import torch
import triton.language as tl
from torch import Tensor

from kernels import launch
from kernels.bundles import Cache, Queries, Table, scale_bundle
from kernels.checks import arguments
from kernels.decode.kernel import paged_decode_kernel
from kernels.decode.plan import Plan
from kernels.reference.lens import Lens
from kernels.sizes import padded

TRITON_TYPE = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}
# More tokens than any sequence has.
NO_WINDOW = 2**31 - 1


def out_dtype(q: Tensor) -> torch.dtype:
    """Say what the kernel computes its output in: float32 for the interpreter, whose bfloat16 is wrong."""
    return torch.float32 if launch.INTERPRETED else q.dtype


def launch_decode(
    partial: Tensor,
    lse: Tensor | None,
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    scale: float | None,
    window: int | None,
    softcap: float | None,
    k_scale: Tensor | None,
    v_scale: Tensor | None,
    plan: Plan,
    *,
    mask_all: bool,
    lens: Lens | None = None,
) -> None:
    """Run the decode kernel over arguments that `paged_decode` describes and its checks have passed.

    Written: partial [num_seqs, num_splits, num_heads, head_dim], each split's attention; lse [num_seqs, num_splits,
    num_heads] float32, unless None; the turns of `lens`, unless None. All contiguous. With `mask_all` every tile is
    masked, so that tiles begin where blocks do.
    """
    num_seqs, num_heads, head_dim = q.shape
    _, block_size, num_kv_heads, _ = k_cache.shape
    narrow = k_cache.dtype in arguments.EIGHT_BITS
    # The interpreter's float8 is wrong too, so torch widens 8-bit caches for it.
    if launch.INTERPRETED and narrow:
        k_cache, v_cache = k_cache.float(), v_cache.float()
    # float8 turns into float16 in one instruction, into bfloat16 in several.
    dot_dtype = torch.float16 if narrow and out_dtype(q) != torch.float32 else out_dtype(q)
    scale = head_dim**-0.5 if scale is None else scale
    score_scale = scale * math.log2(math.e) * (2.0 / softcap if softcap else 1.0)
    with launch.launching(q):
        paged_decode_kernel[num_seqs * num_kv_heads, plan.num_splits](
            partial,
            lse,
            lens,
            None if lens is None else lens.block.shape[3],
            Queries(q, *q.stride()),
            Cache(k_cache, *k_cache.stride()),
            Cache(v_cache, *v_cache.stride()),
            Table(block_tables, *block_tables.stride()),
            seq_lens.contiguous(),
            scale_bundle(k_scale),
            scale_bundle(v_scale),
            score_scale,
            (softcap or 0.0) * math.log2(math.e),
            window or NO_WINDOW,
            NUM_HEADS=num_heads,
            HEADS_PER_KV=num_heads // num_kv_heads,
            HEAD_DIM=head_dim,
            BLOCK_SIZE=block_size,
            TILE_HEADS=padded(num_heads // num_kv_heads),
            TILE_DIM=padded(head_dim),
            TILE_TOKENS=plan.tile_tokens,
            TILE_LANES=padded(plan.tile_tokens),
            DOT_TYPE=TRITON_TYPE[dot_dtype],
            NARROW_Q=dot_dtype != out_dtype(q),
            SOFTCAP=softcap is not None,
            MASK_ALL=mask_all,
            OVERLAP=lse is not None and launch.can_overlap(q),
            num_warps=plan.num_warps,
            num_stages=plan.num_stages,
        )
