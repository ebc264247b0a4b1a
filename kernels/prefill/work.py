"""The work list of a prefill: every piece, a sequence's next few queries, the one with most keys to see first.

Short pieces at the end fill the gaps that long ones leave. Lengths lie on the GPU and are not read back: the list is
written there by a small kernel, in as many rows as these shapes can ever need, and is right again when a CUDA graph
replays it at other lengths.
"""

# Triton kernels are untyped by nature; the launchers are not.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import launch
from kernels.sizes import cdiv, power_of_two


@triton.jit
def list_pieces_kernel(
    pieces,  # [num_pieces, 4] int32, contiguous
    seq_lens,  # [num_seqs]
    query_start_loc,  # [num_seqs + 1]
    num_pieces,
    num_seqs,
    num_tokens,
    PIECE: tl.constexpr,
    TILE_PIECES: tl.constexpr,
    TILE_SEQS: tl.constexpr,
):
    # Rows of q after the last sequence's are one more sequence, without a key: its queries give zeros.
    seq = tl.program_id(0)
    real = seq < num_seqs
    start = tl.load(query_start_loc + seq).to(tl.int32)
    stop = tl.load(query_start_loc + seq + 1, mask=real, other=num_tokens).to(tl.int32)
    cached = tl.load(seq_lens + seq, mask=real, other=0).to(tl.int32) - (stop - start)
    number = tl.program_id(1) * TILE_PIECES + tl.arange(0, TILE_PIECES)
    keys = cached + (number + 1) * PIECE

    # A piece's place is the number of pieces with more keys, or as many in an earlier sequence. Those of one sequence
    # have PIECE keys more each, so they need not be looked at one by one.
    place = tl.zeros([TILE_PIECES], tl.int32)
    total = 0
    for first in range(0, num_seqs + 1, TILE_SEQS):
        other = first + tl.arange(0, TILE_SEQS)
        other_real = other < num_seqs
        begin = tl.load(query_start_loc + other, mask=other <= num_seqs, other=num_tokens).to(tl.int32)
        end = tl.load(query_start_loc + other + 1, mask=other_real, other=num_tokens).to(tl.int32)
        before = tl.load(seq_lens + other, mask=other_real, other=0).to(tl.int32) - (end - begin)
        count = tl.cdiv(end - begin, PIECE)
        fewer = (keys[:, None] - (other < seq)[None, :].to(tl.int32) - before[None, :]) // PIECE
        more = count[None, :] - tl.minimum(tl.maximum(fewer, 0), count[None, :])
        place += tl.sum(more, 1)
        total += tl.sum(count, 0)

    first_query = start + number * PIECE
    mine = first_query < stop
    row = pieces + place * 4
    tl.store(row, tl.zeros([TILE_PIECES], tl.int32) + seq, mask=mine)
    tl.store(row + 1, first_query, mask=mine)
    tl.store(row + 2, tl.minimum(stop - first_query, PIECE), mask=mine)
    tl.store(row + 3, cached + number * PIECE, mask=mine)
    # The shapes may allow more rows than the lengths need: the programs of the last sequence fill them with no query.
    if seq == num_seqs:
        step = TILE_PIECES * tl.num_programs(1)
        for first in range(total + tl.program_id(1) * TILE_PIECES, num_pieces, step):
            spare = first + tl.arange(0, TILE_PIECES)
            for field in tl.static_range(4):
                nothing = tl.full([TILE_PIECES], -1 if field == 3 else 0, tl.int32)
                tl.store(pieces + spare * 4 + field, nothing, mask=spare < num_pieces)


def list_pieces(seq_lens: Tensor, query_start_loc: Tensor, num_tokens: int, piece: int) -> Tensor:
    """Cut each sequence's new tokens into pieces of up to `piece` queries, and list those with most keys first.

    seq_lens [num_seqs] and query_start_loc [num_seqs + 1], contiguous, int32 or int64. Returns int32 [num_pieces, 4]:
    sequence (num_seqs for the rows after the last sequence's), first row of q, number of queries (0 for a piece that
    is not needed), and the position of the first query, which is the last key that it sees.

    Example: query lengths [3, 1], lengths [3, 9], piece=2 -> [1, 3, 1, 8], [0, 2, 1, 2], [0, 0, 2, 0], [0, 0, 0, -1].
    """
    num_seqs = len(seq_lens)
    # A sequence has at most one piece that is not full.
    num_pieces = min(num_tokens, num_tokens // piece + num_seqs + 1)
    pieces = torch.empty((num_pieces, 4), dtype=torch.int32, device=seq_lens.device)
    most = cdiv(num_tokens, piece)
    tile_pieces = min(64, power_of_two(most))
    with launch.launching(seq_lens):
        list_pieces_kernel[num_seqs + 1, cdiv(most, tile_pieces)](
            pieces,
            seq_lens,
            query_start_loc,
            num_pieces,
            num_seqs,
            num_tokens,
            PIECE=piece,
            TILE_PIECES=tile_pieces,
            TILE_SEQS=min(64, power_of_two(num_seqs + 1)),
        )
    return pieces
