"""What one query head's attention did, turn by turn, as JSON: the kernel's own report beside dense attention."""

import math
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

import kernels
from kernels import launch
from pagedviz import source
from pagedviz.play import PROJECT, SourceLine

MAX_BLOCKS = 64  # of a sequence whose turns and weights are shown: a turn takes the interpreter milliseconds

SAYS = {
    "table": "The block's id is read from the table: entry token // block_size.",
    "keys": "That block's keys are loaded. A masked lane loads nothing.",
    "scores": "Query times key, scaled to powers of 2. A masked lane scores minus infinity.",
    "running": "m is the largest score so far. What was summed is scaled down to it, and l takes in the new weights.",
    "values": "That block's values are loaded, and acc takes them in by their weights.",
    "divide": "After the split's last block acc is divided by l, once.",
    "join": "The splits are joined, each by its share 2^lse of all weights.",
}
# How each phase's statement begins, where Triton computes and where the torch twin does.
TRITON = {
    "table": ("kernels/attend_tile.py", "block = load(table"),
    "keys": ("kernels/attend_tile.py", "key = load(keys"),
    "scores": ("kernels/attend_tile.py", "score = tl.dot(query"),
    "running": ("kernels/attend_tile.py", "new_max = tl.maximum(running_max"),
    "values": ("kernels/attend_tile.py", "value = load(values"),
    "divide": ("kernels/decode_kernel.py", "acc = acc / running_sum"),
    "join": ("kernels/combine_splits.py", "joined = tl.sum("),
}
TWIN = {
    "table": ("kernels/reference_lens.py", "block = int(block_tables"),
    "keys": ("kernels/reference_lens.py", "key = dequantized("),
    "scores": ("kernels/reference_lens.py", "raw = torch.einsum("),
    "running": ("kernels/reference_lens.py", "new_max = torch.maximum(running_max"),
    "values": ("kernels/reference_lens.py", "value = dequantized("),
    "divide": ("kernels/reference_lens.py", "lens.partial[seq, split] = acc /"),
    "join": ("kernels/reference_lens.py", "lens.out.copy_("),
}


def lens_answer(
    *,
    seq_id: str,
    layer: int,
    head: int,
    num_splits: int,
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_row: Sequence[int | None],
    seq_len: int,
    log_k: Tensor,
    log_v: Tensor,
    tolerance: float,
) -> dict[str, Any]:
    """Run the decode kernel under the lens for one query head of one sequence's newest token, and compare.

    q [num_heads, head_dim], float32, the query of the newest token in this layer; k_cache, v_cache [num_blocks,
    block_size, num_kv_heads, head_dim], this layer's; block_row the sequence's physical blocks, None for one that is
    not on the device; log_k, log_v [seq_len, num_kv_heads, head_dim], what the cache should hold. `tolerance` is the
    largest difference from dense attention in float64 that passes. Changes nothing.

    Returns plain JSON, numbers to seven digits and None for one that is not finite: {"splits": [{"split", "turns":
    [{"logical_block", "block", "positions", "scores", "m", "l", "shrink", "acc"}], "lse", "out"}], "out", "dense":
    {"scores", "weights", "m", "l", "out"}, "max_error", "ok", "source": {"excerpts", "phases"}, ...}; scores are in
    powers of 2, and `shrink` is 2^(old m - new m), None in a split's first turn. Or {"refused": a sentence}.

    Example: block_row=[7, 2], seq_len=6, block_size=4, num_splits=1 -> one split of two turns, blocks 7 and 2.
    """
    num_heads, head_dim = q.shape
    _, block_size, num_kv_heads, _ = k_cache.shape
    refused = refusal(seq_id, head, num_heads, num_splits, block_row, seq_len)
    if refused:
        return {"refused": refused}
    # The query heads of one KV head are one program's: launch those alone, and look at the one that was asked for.
    group = num_heads // num_kv_heads
    kv_head, in_group = head // group, head % group
    of_kv_head = slice(kv_head, kv_head + 1)
    started = time.perf_counter()
    lens = kernels.paged_decode_lens(
        q[kv_head * group : (kv_head + 1) * group][None],
        k_cache[:, :, of_kv_head],
        v_cache[:, :, of_kv_head],
        torch.tensor([block_row], dtype=torch.int32, device=q.device),
        torch.tensor([seq_len], dtype=torch.int32, device=q.device),
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
                    "logical_block": max(position) // block_size,
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

    dense = dense_row(q[head], log_k[:, kv_head], log_v[:, kv_head])
    max_error = float((lens.out[in_group].double() - dense["out"]).abs().max())
    return {
        "seq_id": seq_id,
        "layer": layer,
        "head": head,
        "kv_head": kv_head,
        "num_splits": num_splits,
        "block_size": block_size,
        "seq_len": seq_len,
        "lanes": lens.position.shape[-1],
        "scale": plain(head_dim**-0.5),
        "splits": splits,
        "out": plain(lens.out[in_group]),
        "dense": {name: plain(numbers) for name, numbers in dense.items()},
        "max_error": plain(max_error),
        "tolerance": tolerance,
        "ok": max_error <= tolerance,
        "backend": kernels.backend_name(),
        "ms": round(milliseconds, 3),
        "source": source_of(TRITON if launch.USES_TRITON else TWIN, joined=num_splits > 1),
    }


def refusal(
    seq_id: str, head: int, num_heads: int, num_splits: int, block_row: Sequence[int | None], seq_len: int
) -> str | None:
    """Say in a sentence why there is nothing to look at, or None."""
    if seq_len == 0:
        return f"{seq_id} has no token yet, so nothing attends."
    if None in block_row:
        return f"{seq_id} is not on the device; reload it first, the kernel reads device blocks only."
    if len(block_row) > MAX_BLOCKS:
        return f"{seq_id} has {len(block_row)} blocks; the lens shows sequences of up to {MAX_BLOCKS}."
    if not 0 <= head < num_heads:
        return f"There is no query head {head}; the heads are 0 to {num_heads - 1}."
    if not 1 <= num_splits <= MAX_BLOCKS:
        return f"{num_splits} splits cannot be shown; choose 1 to {MAX_BLOCKS}."
    return None


def dense_row(q: Tensor, k: Tensor, v: Tensor) -> dict[str, Tensor]:
    """Attend over keys and values that lie side by side, float64: q [head_dim], k and v [seq_len, head_dim]."""
    q, k, v = (x.cpu().double() for x in (q, k, v))
    scores = k @ q * (len(q) ** -0.5 * math.log2(math.e))
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
        phases.append({"name": name, "says": SAYS[name], "excerpt": excerpts.index(excerpt), "line": line})
    return {"excerpts": excerpts, "phases": phases}


@cache
def line_of(file: str, statement: str) -> int:
    """The first line of a file of ours that begins with a statement; read once, as a process keeps what it imported."""
    lines = (PROJECT / file).read_text(encoding="utf-8").splitlines()
    return next(i for i, text in enumerate(lines, 1) if text.strip().startswith(statement))
