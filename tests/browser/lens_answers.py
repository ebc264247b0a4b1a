"""Answers for the stage's kernel lens: the loop of `paged_decode` over the engine's own tables, in plain float64."""

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np

from pagedviz.engine import replay
from pagedviz.engine.events import Event
from pagedviz.engine.snapshot import Snapshot

Data = dict[str, Any]
ROOT = Path(__file__).parents[2]
CACHE = {"num_layers": 2, "num_heads": 2, "num_kv_heads": 1, "head_dim": 8}
LANES = 16
SCALE = CACHE["head_dim"] ** -0.5
PHASES = (
    ("table", "the id of the block is read from the table", "block = load("),
    ("keys", "the block's keys are loaded; a masked lane loads nothing", "key = load("),
    ("scores", "query times keys; a masked lane scores minus infinity", "score = tl.where("),
    ("running", "the new maximum, and what was summed is scaled down to it", "running_sum = running_sum"),
    ("values", "the block's values are loaded, weighed and added", "acc = tl.dot("),
)


def snapshot_of(data: Data, step: int) -> Snapshot:
    """The state after `step` events of a run's data."""
    base = {name: value for name, value in data["base"].items() if name != "seq_lens"}
    for name in ("ref_counts", "host_ref_counts"):
        base[name] = {int(block): count for block, count in base[name].items()}
    for name in ("block_tables", "host_tables", "tokens"):
        base[name] = {seq: tuple(row) for seq, row in base[name].items()}
    for name in ("pinned", "free_blocks", "host_free_blocks"):
        base[name] = tuple(base[name])
    snapshot = Snapshot(**base)
    for info in data["steps"][:step]:
        snapshot = replay.apply(snapshot, Event.from_json(info["event"]))
    return snapshot


def _drawn(*of: Any) -> np.ndarray[Any, Any]:
    seed = int.from_bytes(hashlib.sha256(repr(of).encode()).digest()[:7])
    return np.random.default_rng(seed).standard_normal(CACHE["head_dim"])


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _source(splits: int) -> Data:
    excerpts, phases = [], []
    starts = {"kernels/attend_tile.py": "def attend_tile(", "kernels/decode_kernel.py": "    # Without a token"}
    starts |= {"kernels/combine_splits.py": "def combine_splits_kernel("}
    for file, first_word in starts.items():
        lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
        first = next(k for k, line in enumerate(lines) if line.startswith(first_word))
        name = Path(file).stem
        excerpts.append({"file": file, "name": name, "first_line": first + 1, "lines": lines[first:]})
    last = [("divide", "what was summed is divided by l, once", "acc = acc / running_sum")]
    last += [("join", "the splits are added, each by its share of the weight", "joined = ")] * (splits > 1)
    for name, says, start in (*PHASES, *last):
        excerpt = {"divide": 1, "join": 2}.get(name, 0)
        lines, first = excerpts[excerpt]["lines"], excerpts[excerpt]["first_line"]
        line = first + next(k for k, text in enumerate(lines) if text.strip().startswith(start))
        phases.append({"name": name, "says": says, "excerpt": excerpt, "line": line})
    return {"excerpts": excerpts, "phases": phases}


def answer(data: Data, asked: Data) -> Data:
    """What the kernel would answer."""
    snapshot, seq, splits = snapshot_of(data, asked["step"]), asked["seq_id"], asked["num_splits"]
    if not snapshot.is_resident(seq):
        return {"refused": f"{seq} is not on the device, and a kernel reads nothing else: reload it first."}
    row, tokens, size = snapshot.block_tables[seq], snapshot.tokens[seq], snapshot.block_size
    if len(row) > 64:
        return {"refused": f"{seq} has {len(row)} blocks; the lens shows up to 64."}
    of = asked["layer"], asked["head"]
    query = _drawn("q", of, tokens[-1], len(tokens)) * SCALE * math.log2(math.e)
    keys = np.stack([_drawn("k", of, token, at) for at, token in enumerate(tokens)])
    values = np.stack([_drawn("v", of, token, at) for at, token in enumerate(tokens)])
    scores = keys @ query

    share = math.ceil(math.ceil(len(tokens) / splits) / size) * size
    found: list[Data] = []
    for split in range(splits):
        m, total, acc, turns = -math.inf, 0.0, np.zeros(CACHE["head_dim"]), []
        for first in range(min(split * share, len(tokens)), min((split + 1) * share, len(tokens)), size):
            here = slice(first, min(first + size, len(tokens)))
            grown = max(m, scores[here].max())
            weight, shrink = np.exp2(scores[here] - grown), 2 ** (m - grown)
            m, total, acc = grown, total * shrink + weight.sum(), acc * shrink + weight @ values[here]
            masked = [None] * (LANES - len(weight))
            turn = {"logical_block": first // size, "block": row[first // size], "m": float(m), "l": float(total)}
            turn |= {"positions": [*range(here.start, here.stop), *masked], "scores": [*scores[here].tolist(), *masked]}
            turns.append(turn | {"shrink": float(shrink) if turns else None, "acc": acc.tolist()})
        lse = m + math.log2(total) if turns else -math.inf
        out = acc / total if turns else acc
        found.append({"split": split, "turns": turns, "lse": _finite(lse), "out": out.tolist()})

    weights = np.exp2([-math.inf if part["lse"] is None else part["lse"] for part in found])
    joined = weights @ np.stack([part["out"] for part in found]) / weights.sum()
    dense = np.exp2(scores - scores.max())
    plain = dense @ values / dense.sum()
    error = float(np.abs(joined - plain).max())
    good: Data = {"seq_id": seq, "layer": asked["layer"], "head": asked["head"], "kv_head": 0, "num_splits": splits}
    good |= {"block_size": size, "seq_len": len(tokens), "lanes": max(LANES, size), "scale": SCALE, "splits": found}
    good |= {"out": joined.tolist(), "max_error": error, "tolerance": 1e-05, "ok": error < 1e-05}
    good["dense"] = {"scores": scores.tolist(), "weights": (dense / dense.sum()).tolist(), "m": float(scores.max())}
    good["dense"] |= {"l": float(dense.sum()), "out": plain.tolist()}
    return good | {"backend": "float64 on the CPU", "ms": 1.0, "source": _source(splits)}
