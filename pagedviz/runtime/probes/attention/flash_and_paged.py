"""One kernel over one sequence twice: through its table, and over the same K and V side by side in tiles."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

import kernels
from pagedviz import probe
from pagedviz.probe import whole_number
from pagedviz.runtime.checking.tolerance import TOLERANCE
from pagedviz.runtime.probes.attention.newest import Newest, must_see_all, newest
from pagedviz.runtime.running.recording import Moment
from pagedviz.scenario.settings import RANGES


def answer(question: probe.FlashAndPaged, moment: Moment) -> dict[str, Any]:
    """What m and l were after each turn of either loop, and how far apart they and the outputs are."""
    at = newest(moment, question.seq_id, question.layer, question.head)
    must_see_all(at)
    whole_number("tile", question.tile, *RANGES["block_size"])
    tiles = torch.arange(-(-at.seq_len // question.tile), dtype=torch.int32, device=at.q.device)
    k, v = (_side_by_side(cache, at, question.tile) for cache in (at.k_cache, at.v_cache))
    paged, flash = _turns(at, at.k_cache, at.v_cache, at.block_table), _turns(at, k, v, tiles)
    dense = kernels.dense_attention(at.q[None], at.k, at.v)[0, at.head]
    error = float((torch.stack([paged[2], flash[2]]) - dense).abs().max())
    return {
        "seq_id": question.seq_id,
        "layer": question.layer,
        "head": question.head,
        "seq_len": at.seq_len,
        "block_size": at.block_size,
        "tile": question.tile,
        "paged": _turn_rows(*paged[:2], at.block_table),
        "flash": _turn_rows(*flash[:2], tiles),
        "turns_that_differ": _differing(paged, flash) if question.tile == at.block_size else None,
        "numbers_that_differ": int((_bits(paged[2]) != _bits(flash[2])).sum()),
        "head_dim": at.q.shape[1],
        "difference": float((paged[2] - flash[2]).abs().max()),
        "max_error": error,
        "ok": error <= TOLERANCE,
    }


def _side_by_side(cache: Tensor, at: Newest, tile: int) -> Tensor:
    """A sequence's rows of a cache in order, [tiles, tile, num_kv_heads, head_dim]; NaN after its last token."""
    rows = cache[at.block_table.long()].flatten(0, 1)[: at.seq_len]
    padded = pad(rows, (0, 0, 0, 0, 0, -at.seq_len % tile), value=math.nan)
    return padded.view(-1, tile, *padded.shape[1:])


def _turns(at: Newest, k_cache: Tensor, v_cache: Tensor, table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """m and l [turns] after each turn, and the output [head_dim], of the query head in question."""
    seq_lens = torch.tensor([at.seq_len], dtype=torch.int32, device=at.q.device)
    seen = kernels.paged_decode_lens(at.q[None], k_cache, v_cache, table[None], seq_lens)
    return seen.m[0, at.head, 0], seen.l[0, at.head, 0], seen.out[0, at.head]


def _turn_rows(m: Tensor, l: Tensor, places: Tensor) -> list[dict[str, Any]]:  # noqa: E741
    rows = zip(places.tolist(), m.tolist(), l.tolist(), strict=True)
    return [{"place": place, "m": largest, "l": total} for place, largest, total in rows]


def _differing(paged: tuple[Tensor, ...], flash: tuple[Tensor, ...]) -> int:
    """Turns after which m or l differ in any bit."""
    differ = [_bits(one) != _bits(other) for one, other in zip(paged[:2], flash[:2], strict=True)]
    return int((differ[0] | differ[1]).sum())


def _bits(numbers: Tensor) -> Tensor:
    return numbers.contiguous().view(torch.int32)
