"""The toy model's rows for tokens by dense attention, one row at a time as in a run: to judge rows that were hit, and
to compute rows again that no block holds any more."""

from collections.abc import Sequence

import torch

import kernels
from pagedviz.engine.log.events.base import Token
from pagedviz.runtime.checking.kv_log import LoggedSequence
from pagedviz.runtime.computing.toy_model import ToyModel


def dense_rows(model: ToyModel, tokens: Sequence[Token], past: LoggedSequence | None = None) -> LoggedSequence:
    """The rows of `tokens` alone, computed after those of `past`, or as the first of their sequence."""
    past = past or LoggedSequence(len(model.layers))
    new = LoggedSequence(len(model.layers))
    rows = [model.embed(token) for token in tokens]
    for layer, window in enumerate(model.windows):
        for position, x in enumerate(rows, len(past.x)):
            for row, value in zip((new.q, new.k, new.v), model.qkv(layer, x, position), strict=True):
                row[layer].append(value)
        q, k, v = (
            torch.stack(heads) for heads in (new.q[layer], past.k[layer] + new.k[layer], past.v[layer] + new.v[layer])
        )
        attended = kernels.dense_attention(q, k, v, window=window).to(q.dtype)
        rows = [model.after_attention(layer, x, out) for x, out in zip(rows, attended, strict=True)]
    new.x = rows
    return new
