"""Join what the splits of one sequence have found, each over its own part of the tokens.

    out = sum over splits of 2^(lse - largest lse) * partial / sum over splits of 2^(lse - largest lse)

where lse = m + log2(l) says how much weight the scores of a split had in all. Flash-decoding's second, small kernel.
"""

# Triton kernels are untyped by nature; the launchers are not.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl
from torch import Tensor

from kernels import launch
from kernels.sizes import cdiv, power_of_two


@triton.jit
def combine_splits_kernel(
    out,  # [num_seqs, num_heads, head_dim], contiguous
    partial,  # [num_seqs, num_splits, num_heads, head_dim] float32, contiguous
    lse,  # [num_seqs, num_splits, num_heads] float32, contiguous
    num_splits,
    NUM_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    TILE_SPLITS: tl.constexpr,
    TILE_DIM: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    # Started while the splits' last programs end: what they write is there after this line.
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
    seq = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    dim = tl.program_id(2) * TILE_DIM + tl.arange(0, TILE_DIM)
    split = tl.arange(0, TILE_SPLITS)
    row = (seq * num_splits + split) * NUM_HEADS + head

    # A split that had nothing to do says -inf and weighs nothing; if all of them did, the answer is 0 / 1.
    weight = tl.load(lse + row, mask=split < num_splits, other=-float("inf"))
    largest = tl.max(weight, 0)
    weight = tl.exp2(weight - tl.where(largest == -float("inf"), 0.0, largest))
    total = tl.sum(weight, 0)

    real = (split < num_splits)[:, None] & (dim < HEAD_DIM)[None, :]
    found = tl.load(partial + row[:, None] * HEAD_DIM + dim[None, :], mask=real, other=0.0)
    joined = tl.sum(found * weight[:, None], 0) / tl.where(total == 0.0, 1.0, total)
    to = (seq * NUM_HEADS + head) * HEAD_DIM + dim
    tl.store(out + to, joined.to(out.dtype.element_ty), mask=dim < HEAD_DIM)


def combine_splits(out: Tensor, partial: Tensor, lse: Tensor) -> None:
    """Write into `out` the attention whose splits are in `partial`, each divided by its own sum already.

    out [num_seqs, num_heads, head_dim], written; partial [num_seqs, num_splits, num_heads, head_dim] float32; lse
    [num_seqs, num_splits, num_heads] float32, the log2 of each split's sum of weights, -inf for a split without a
    token; all contiguous. A sequence with only empty splits gives zeros.

    Example: partial=[1, 5], lse=[0, 1] -> (1 * 1 + 2 * 5) / (1 + 2) = 11 / 3.
    Source: Dao et al., Flash-Decoding, 2023.
    """
    num_seqs, num_splits, num_heads, head_dim = partial.shape
    tile_dim = min(64, power_of_two(head_dim))
    overlap = launch.can_overlap(out)
    with launch.launching(out):
        combine_splits_kernel[num_seqs, num_heads, cdiv(head_dim, tile_dim)](
            out,
            partial,
            lse,
            num_splits,
            NUM_HEADS=num_heads,
            HEAD_DIM=head_dim,
            TILE_SPLITS=power_of_two(num_splits),
            TILE_DIM=tile_dim,
            OVERLAP=overlap,
            launch_pdl=overlap,
        )
