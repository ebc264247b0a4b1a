"""What one turn of `paged_decode`'s loop held, written where a lens can look at it; no part of a production kernel.

Nothing is computed again here: the arguments are the very tensors that the turn loaded with and added up.
"""

# Triton kernels are untyped by nature; the launchers are not.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl


@triton.jit
def report_turn(
    lens,  # Lens: pointers to block, position, score, m, l and acc, each contiguous
    of_kv_head,  # the row of this turn in block and position
    of_head,  # [TILE_HEADS, 1] the rows of this turn in score, m, l and acc
    real_head,  # [TILE_HEADS, 1] false for padding
    token,  # [TILE_LANES] positions in the sequence
    mine,  # [TILE_LANES] the mask of the loads
    block,  # [TILE_LANES] the ids in the addresses that were loaded from
    score,  # [TILE_HEADS, TILE_LANES]
    running_max,  # [TILE_HEADS]
    running_sum,  # [TILE_HEADS]
    acc,  # [TILE_HEADS, TILE_DIM]
    HEAD_DIM: tl.constexpr,
):
    lanes: tl.constexpr = score.shape[1]
    lane = tl.arange(0, lanes)
    dim = tl.arange(0, acc.shape[1])[None, :]

    # A turn is one block, so all lanes that loaded hold the same id.
    tl.store(lens.block + of_kv_head, tl.max(tl.where(mine, block, -1), 0).to(tl.int32))
    tl.store(lens.position + of_kv_head * lanes + lane, tl.where(mine, token, -1))
    tl.store(lens.score + of_head * lanes + lane[None, :], score, mask=real_head)
    tl.store(lens.m + of_head, running_max[:, None], mask=real_head)
    tl.store(lens.l + of_head, running_sum[:, None], mask=real_head)
    tl.store(lens.acc + of_head * HEAD_DIM + dim, acc, mask=real_head & (dim < HEAD_DIM))
