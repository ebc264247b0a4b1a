"""The wrong hit of a block hash without its parent: a block with the right tokens, computed after a wrong prefix."""

from typing import Any

import torch
from torch import Tensor

import kernels
from pagedviz import probe
from pagedviz.probe import Refused
from pagedviz.runtime.checking.tolerance import TOLERANCE
from pagedviz.runtime.computing.toy_model import ToyModel
from pagedviz.runtime.probes.attention.newest import newest
from pagedviz.runtime.running.recording import Moment


def answer(question: probe.UnchainedHit, moment: Moment) -> dict[str, Any]:
    """For each layer, the largest error of the block's K and V and of the attention, against the sequence's own.

    The model computes the tokens after the block again, in a copy of the cache, with the kernels that serve a hit.
    """
    state, config = moment.snapshot, moment.scenario.cache
    at, other = newest(moment, question.seq_id, 0, 0), newest(moment, question.other, 0, 0)
    if state.windows != (None,):
        raise Refused("A wrong hit is shown only if all layers are in one group and see all tokens; here they are not.")
    first = _first_behind(question, moment)
    own, block = (int(row.block_table[question.logical_block]) for row in (at, other))
    found = slice(first - at.block_size, first)
    table = at.block_table.tolist()
    table[question.logical_block] = block
    behind = range(first, at.seq_len)
    slots = [table[p // at.block_size] * at.block_size + p % at.block_size for p in behind]

    kv, logged = moment.kv.clone(), moment.log[question.seq_id]
    model = ToyModel(config, moment.scenario.seed, kv.device)
    rows = [model.embed(token) for token in state.tokens[question.seq_id][first:]]
    places = (torch.tensor(n, dtype=torch.int32, device=kv.device) for n in ([table], [at.seq_len], [0, len(behind)]))
    block_tables, seq_lens, query_start_loc = places
    layers: list[dict[str, float]] = []
    for layer in range(config.num_layers):
        projected = [model.qkv(layer, x, position) for x, position in zip(rows, behind, strict=True)]
        q, k, v = (torch.stack(heads) for heads in zip(*projected, strict=True))
        kv.store(layer, k, v, slots)
        paged = kernels.paged_prefill(q, kv.k[layer], kv.v[layer], block_tables, seq_lens, query_start_loc)
        rows = [model.after_attention(layer, x, heads) for x, heads in zip(rows, paged, strict=True)]
        right_k, right_v = logged.stacked_kv(layer, at.seq_len)
        right = kernels.dense_attention(torch.stack(logged.q[layer][first : at.seq_len]), right_k, right_v)
        layers.append(
            {
                "k_error": _distance(kv.k[layer, block], right_k[found]),
                "v_error": _distance(kv.v[layer, block], right_v[found]),
                "out_error": _distance(paged, right),
            }
        )
    hashes = {b: cached.block_hash for b, cached in state.cached.items()}
    worst = max(layer["out_error"] for layer in layers)
    return {
        "seq_id": question.seq_id,
        "other": question.other,
        "logical_block": question.logical_block,
        "tokens": list(state.tokens[question.seq_id][found]),
        "block": block,
        "block_hash": hashes.get(block),
        "own_block": own,
        "own_hash": hashes.get(own),
        "first_behind": first,
        "layers": layers,
        "equal_layers": sum(layer["k_error"] == layer["v_error"] == 0 for layer in layers),
        "tolerance": TOLERANCE,
        "max_error": worst,
        "ok": worst <= TOLERANCE,
    }


def _first_behind(question: probe.UnchainedHit, moment: Moment) -> int:
    """The position after the block; raises Refused unless a prompt could hit the block wrongly there."""
    size, j = moment.snapshot.block_size, question.logical_block
    mine, theirs = (moment.snapshot.tokens[seq_id] for seq_id in (question.seq_id, question.other))
    if type(j) is not int or not 0 <= j < min((len(mine) - 1) // size, len(theirs) // size):
        raise Refused(
            f"logical_block is {j!r}; it must be full in {question.seq_id} and in {question.other}, and "
            f"{question.seq_id} must go on behind it."
        )
    if mine[j * size : (j + 1) * size] != theirs[j * size : (j + 1) * size]:
        raise Refused(f"Logical block {j} of {question.seq_id} and that of {question.other} hold different tokens.")
    if mine[: j * size] == theirs[: j * size]:
        raise Refused(
            f"{question.seq_id} and {question.other} begin with the same tokens up to there: such a hit is right."
        )
    return (j + 1) * size


def _distance(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max())
