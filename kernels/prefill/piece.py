"""What both prefill kernels do around their tiles: read the piece, share out its tiles, write what was found.

A piece is a row of the work list (`work.py`): a sequence, its next few queries, and the last key that the first
of them sees.
"""

# Triton kernels are untyped by nature; the launchers are not.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl


@triton.jit
def share_tiles(
    first_last,
    num_queries,
    window,
    split,
    num_splits,
    TILE_TOKENS: tl.constexpr,
    MASK_ALL: tl.constexpr,
):
    """Return the tokens [start, stop) that any query sees; this split's tiles from first_tile on: how many come before
    the whole ones, the whole ones [whole_from, whole_until) that every query sees all of, how many come after.
    """
    stop = first_last + num_queries
    start = tl.maximum(tl.maximum(first_last, 0) - window + 1, 0)
    end_tile = tl.maximum(tl.cdiv(stop, TILE_TOKENS), 0)
    first_tile = tl.minimum(start // TILE_TOKENS, end_tile)
    share = tl.cdiv(end_tile - first_tile, num_splits)
    first_tile = tl.minimum(first_tile + split * share, end_tile)
    end_tile = tl.minimum(first_tile + share, end_tile)
    whole_until = tl.minimum(tl.maximum((first_last + 1) // TILE_TOKENS, first_tile), end_tile)
    whole_from = tl.cdiv(tl.maximum(stop - window, 0), TILE_TOKENS)
    whole_from = tl.minimum(tl.maximum(whole_from, first_tile), whole_until)
    if MASK_ALL:
        whole_from = whole_until
    return start, stop, first_tile, whole_from - first_tile, whole_from, whole_until, end_tile - whole_until


@triton.jit
def read_rows(
    q,  # Queries [num_tokens, num_heads, head_dim]
    first_query,
    num_queries,
    first_head,
    HEADS_PER_KV: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_DIM: tl.constexpr,
):
    """Return the piece's rows, query after query and in each the heads of one KV head; zeros after the last."""
    row = tl.arange(0, TILE_ROWS)
    # Offsets are int64: an id times a stride passes 2^31 elements in any large pool.
    token = first_query + row // HEADS_PER_KV
    head = first_head + row % HEADS_PER_KV
    dim = tl.arange(0, TILE_DIM)[None, :]
    real = (row < num_queries * HEADS_PER_KV)[:, None] & (dim < HEAD_DIM)
    at = (token * q.token + head * q.head)[:, None] + dim.to(tl.int64) * q.dim
    return tl.load(q.start + at, mask=real, other=0.0)


@triton.jit
def write_rows(
    out,  # [num_tokens, num_splits, num_heads, head_dim], contiguous
    lse,  # [num_tokens, num_splits, num_heads] float32, contiguous, or None
    acc,
    running_max,
    running_sum,
    first_query,
    num_queries,
    first_head,
    split,
    num_splits,
    NUM_HEADS: tl.constexpr,
    HEADS_PER_KV: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_DIM: tl.constexpr,
):
    """Divide by the sum of the weights and write; with splits also how much the weights were in all."""
    # A query without a key summed nothing: 0 / 1 gives the zeros that 0 / 0 would not, and lse stays -inf.
    running_sum = tl.where(running_sum == 0.0, 1.0, running_sum)
    acc = acc * (1.0 / running_sum)[:, None]
    # Only the piece's own beginning needs int64; from there on, 32 bits leave more registers to the loops.
    row = tl.arange(0, TILE_ROWS)
    first = (first_query * num_splits + split) * NUM_HEADS + first_head
    found = row // HEADS_PER_KV * (num_splits * NUM_HEADS) + row % HEADS_PER_KV
    real = row < num_queries * HEADS_PER_KV
    dim = tl.arange(0, TILE_DIM)[None, :]
    to = out + first * HEAD_DIM + (found * HEAD_DIM)[:, None] + dim
    tl.store(to, acc.to(out.dtype.element_ty), mask=real[:, None] & (dim < HEAD_DIM))
    if lse is not None:
        tl.store(lse + first + found, running_max + tl.log2(running_sum), mask=real)
