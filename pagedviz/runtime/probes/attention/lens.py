"""What one query head's attention did, turn by turn, as JSON: the kernel's own report beside dense attention."""

import math
import time
from functools import cache
from typing import Any

import torch
from torch import Tensor

import kernels
from kernels import launch
from pagedviz import probe
from pagedviz.probe import Refused, whole_number
from pagedviz.run import source
from pagedviz.run.source import PROJECT, SourceLine
from pagedviz.runtime.checking.tolerance import MAX_SHOWN_BLOCKS, TOLERANCE
from pagedviz.runtime.probes.attention.newest import Newest, newest
from pagedviz.runtime.running.recording import Moment

MOST_SPLITS = 8

PHASE_SENTENCES = {
    "table": "The block's id is read from the table: entry token // block_size.",
    "keys": "That block's keys are loaded. A masked lane loads nothing.",
    "scores": "Query times key, scaled to powers of 2. A masked lane scores minus infinity.",
    "running": "m is the largest score so far. The earlier sums are scaled down to it, and l adds the new weights.",
    "values": "That block's values are loaded, and acc adds them by their weights.",
    "divide": "After the split's last block acc is divided by l, once.",
    "join": "The splits are joined, each by its share 2^lse of all weights.",
}
# How each phase's statement begins, where Triton computes and where the torch twin does.
TRITON = {
    "table": ("kernels/decode/tile.py", "block = load(table"),
    "keys": ("kernels/decode/tile.py", "key = load(keys"),
    "scores": ("kernels/decode/tile.py", "score = tl.dot(query"),
    "running": ("kernels/decode/tile.py", "new_max = tl.maximum(running_max"),
    "values": ("kernels/decode/tile.py", "value = load(values"),
    "divide": ("kernels/decode/kernel.py", "acc = acc / running_sum"),
    "join": ("kernels/decode/combine_splits.py", "joined = tl.sum("),
}
TWIN = {
    "table": ("kernels/reference/lens.py", "block = int(block_tables"),
    "keys": ("kernels/reference/lens.py", "key = dequantized("),
    "scores": ("kernels/reference/lens.py", "raw = torch.einsum("),
    "running": ("kernels/reference/lens.py", "new_max = torch.maximum(running_max"),
    "values": ("kernels/reference/lens.py", "value = dequantized("),
    "divide": ("kernels/reference/lens.py", "lens.partial[seq, split] = acc /"),
    "join": ("kernels/reference/lens.py", "lens.out.copy_("),
}


def answer(question: probe.Lens, moment: Moment) -> dict[str, Any]:
    """What the decode kernel did for a sequence's newest token; refused for a sequence of too many blocks."""
    at = newest(moment, question.seq_id, question.layer, question.head)
    whole_number("num_splits", question.num_splits, 1, MOST_SPLITS)
    if len(at.block_table) > MAX_SHOWN_BLOCKS:
        raise Refused(
            f"{question.seq_id} has {len(at.block_table)} blocks; the lens shows sequences of up to {MAX_SHOWN_BLOCKS}."
        )
    return lens_answer(question, at)


def lens_answer(question: probe.Lens, at: Newest) -> dict[str, Any]:
    """Run the decode kernel under the lens for one query head of one sequence's newest token, and compare.

    Returns plain JSON, numbers to seven digits and None for one that is not finite: {"splits": [{"split", "turns":
    [{"logical_block", "block", "positions", "scores", "m", "l", "shrink", "acc"}], "lse", "out"}], "out", "dense":
    {"scores", "weights", "m", "l", "out"}, "max_error", "ok", "source": {"excerpts", "phases"}, ...}; scores are in
    powers of 2, and `shrink` is 2^(old m - new m), None in a split's first turn. Changes nothing.

    Example: block_table=[7, 2], seq_len=6, block_size=4, num_splits=1 -> one split of two turns, blocks 7 and 2.
    """
    num_splits = question.num_splits
    num_heads, head_dim = at.q.shape
    # One program computes all query heads of one KV head: launch those alone, and report the one that was asked for.
    group = num_heads // at.k_cache.shape[2]
    in_group = at.head % group
    of_kv_head = slice(at.kv_head, at.kv_head + 1)
    started = time.perf_counter()
    lens = kernels.paged_decode_lens(
        at.q[at.kv_head * group : (at.kv_head + 1) * group][None],
        at.k_cache[:, :, of_kv_head],
        at.v_cache[:, :, of_kv_head],
        at.block_table[None],
        torch.tensor([at.seq_len], dtype=torch.int32, device=at.q.device),
        window=at.window,
        num_splits=num_splits,
    )
    lens = type(lens)(*(buffer[0].cpu() for buffer in lens))
    milliseconds = (time.perf_counter() - started) * 1000

    splits: list[dict[str, Any]] = []
    for split in range(num_splits):
        turns: list[dict[str, Any]] = []
        for turn in range(int((lens.block[0, split] >= 0).sum())):
            m = lens.m[in_group, split, : turn + 1]
            position = lens.position[0, split, turn].tolist()
            turns.append(
                {
                    "logical_block": max(position) // at.block_size,
                    "block": int(lens.block[0, split, turn]),
                    "positions": [None if token < 0 else token for token in position],
                    "scores": plain(lens.score[in_group, split, turn]),
                    "m": plain(m[-1]),
                    "l": plain(lens.l[in_group, split, turn]),
                    "shrink": plain(torch.exp2(m[-2] - m[-1])) if turn else None,
                    "acc": plain(lens.acc[in_group, split, turn]),
                }
            )
        lse, out = lens.lse[split, in_group], lens.partial[split, in_group]
        splits.append({"split": split, "turns": turns, "lse": plain(lse), "out": plain(out)})

    dense = dense_row(at.q[at.head], at.k[:, at.kv_head], at.v[:, at.kv_head], at.window)
    max_error = float((lens.out[in_group].double() - dense["out"]).abs().max())
    return {
        "seq_id": question.seq_id,
        "layer": question.layer,
        "head": at.head,
        "kv_head": at.kv_head,
        "num_splits": num_splits,
        "block_size": at.block_size,
        "seq_len": at.seq_len,
        "window": at.window,
        "lanes": lens.position.shape[-1],
        "scale": plain(head_dim**-0.5),
        "splits": splits,
        "out": plain(lens.out[in_group]),
        "dense": {name: plain(numbers) for name, numbers in dense.items()},
        "max_error": plain(max_error),
        "tolerance": TOLERANCE,
        "ok": max_error <= TOLERANCE,
        "backend": kernels.backend_name(),
        "ms": round(milliseconds, 3),
        "source": source_of(TRITON if launch.USES_TRITON else TWIN, joined=num_splits > 1),
    }


def dense_row(q: Tensor, k: Tensor, v: Tensor, window: int | None = None) -> dict[str, Tensor]:
    """Attend over contiguous keys and values in float64: q [head_dim], k and v [seq_len, head_dim].

    Tokens before the window score minus infinity.
    """
    q, k, v = (x.cpu().double() for x in (q, k, v))
    scores = k @ q * (len(q) ** -0.5 * math.log2(math.e))
    if window is not None:
        scores[:-window] = -math.inf
    m = scores.amax()
    unscaled = torch.exp2(scores - m)
    weights = unscaled / unscaled.sum()
    return {"scores": scores, "weights": weights, "m": m, "l": unscaled.sum(), "out": weights @ v}


def plain(numbers: Any) -> Any:
    """Turn a tensor, a list or a number into JSON's, seven digits each; what is not finite is None."""
    if isinstance(numbers, Tensor):
        numbers = numbers.tolist()
    if isinstance(numbers, list):
        return [plain(number) for number in numbers]
    return float(f"{numbers:.7g}") if math.isfinite(numbers) else None


def source_of(statements: dict[str, tuple[str, str]], joined: bool) -> dict[str, Any]:
    """Find each phase's line by its statement: {"excerpts": [...], "phases": [{"name", "says", "excerpt", "line"}]}."""
    excerpts: list[dict[str, Any]] = []
    phases = []
    for name, (file, statement) in statements.items():
        if name == "join" and not joined:
            continue
        line = line_of(file, statement)
        excerpt = source.excerpt(SourceLine(file, line))
        if excerpt not in excerpts:
            excerpts.append(excerpt)
        phases.append({"name": name, "says": PHASE_SENTENCES[name], "excerpt": excerpts.index(excerpt), "line": line})
    return {"excerpts": excerpts, "phases": phases}


@cache
def line_of(file: str, statement: str) -> int:
    """The number of the first line of a file that begins with a statement. Cached: the imported code stays the same."""
    lines = (PROJECT / file).read_text(encoding="utf-8").splitlines()
    return next(i for i, text in enumerate(lines, 1) if text.strip().startswith(statement))
