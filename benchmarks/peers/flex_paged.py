"""torch's flex_attention, compiled, over pages: the blocks of its block mask are the cache's, from the block table."""

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from benchmarks.peers.absent import Absent
from pagedviz.runtime.measuring.bandwidth import Launch

NAME = "flex_attention"
TIMED = "graph"
QUERY_TILE = 128
SMALLEST_BLOCK = 16

_compiled = torch.compile(flex_attention, dynamic=False)


def version() -> str:
    return f"torch {torch.__version__}"


def _mask(tables: Tensor, seq_lens: Tensor, new: int, block_size: int, num_blocks: int) -> BlockMask:
    """The blocks that each tile of queries sees wholly, and those it sees in part; a block belongs to one sequence."""
    num_seqs, width = tables.shape
    columns = torch.arange(width, dtype=torch.int32, device=tables.device)
    used = columns * block_size < seq_lens[:, None]
    tables = tables.where(used, 0)
    logical = torch.zeros(num_blocks, dtype=torch.int32, device=tables.device)
    logical[tables[used].long()] = columns.expand(num_seqs, -1)[used]
    first_new = (seq_lens - new).to(torch.int32)
    tiles = -(-new // QUERY_TILE)
    first = first_new[:, None] + torch.arange(tiles, device=tables.device) * QUERY_TILE  # [num_seqs, tiles]
    last = torch.minimum(first + QUERY_TILE, seq_lens[:, None]) - 1
    whole = (first + 1) // block_size
    seen = last // block_size + 1
    wholly = tables[:, None, :].expand(-1, tiles, -1)
    partly = tables.gather(1, (whole[:, :, None] + columns).clamp(max=width - 1).flatten(1).long()).view(wholly.shape)

    def sees(b: Tensor, h: Tensor, query: Tensor, slot: Tensor) -> Tensor:
        return logical[slot // block_size] * block_size + slot % block_size <= first_new[b] + query

    counts_and_blocks = ((seen - whole, partly), (whole, wholly))
    arguments = [x.to(torch.int32)[:, None].contiguous() for pair in counts_and_blocks for x in pair]
    lengths = (new, num_blocks * block_size)
    return BlockMask.from_kv_blocks(*arguments, (QUERY_TILE, block_size), sees, lengths, compute_q_blocks=False)


def _checked(k: Tensor, scales: object) -> None:
    if scales:
        raise Absent("no 8-bit K and V")
    if k.shape[1] < SMALLEST_BLOCK:
        raise Absent(f"its kernel takes a tile of at most one block, and of at least {SMALLEST_BLOCK} tokens")
    # It compiles for every shape. After eight shapes it would fall back to a slow path without compiling.
    torch.compiler.reset()


def decode(q: Tensor, k: Tensor, v: Tensor, tables: Tensor, seq_lens: Tensor, **scales: Tensor) -> list[Launch]:
    _checked(k, scales)
    return [_prepared(query, k, v, table, seq_lens, 1) for query, table in zip(q, tables, strict=True)]


def prefill(
    q: Tensor, k: Tensor, v: Tensor, tables: Tensor, seq_lens: Tensor, query_start_loc: Tensor, **scales: Tensor
) -> list[Launch]:
    _checked(k, scales)
    new = query_start_loc.diff().unique()
    if len(new) > 1:
        raise Absent("tried with equally many new tokens a sequence only")
    if k.shape[1] != QUERY_TILE:
        raise Absent(f"tried at block_size {QUERY_TILE} only, its default")
    return [_prepared(query, k, v, table, seq_lens, int(new)) for query, table in zip(q, tables, strict=True)]


def _prepared(q: Tensor, k: Tensor, v: Tensor, tables: Tensor, seq_lens: Tensor, new: int) -> Launch:
    mask = _mask(tables, seq_lens, new, k.shape[1], k.shape[0])
    keys, values = (cache.flatten(0, 1).transpose(0, 1)[None] for cache in (k, v))
    query = q.view(len(seq_lens), new, *q.shape[1:]).transpose(1, 2)

    def launch() -> Tensor:
        out = _compiled(query, keys, values, block_mask=mask, enable_gqa=True)
        return out.transpose(1, 2).flatten(0, 1)

    return launch
