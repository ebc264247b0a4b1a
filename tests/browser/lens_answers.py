"""What the compute process answers the stage's kernel lens: the kernel's own report over the engine's own tables.

Torch is imported at the first question only, as most of the stage's tests ask none.
"""

import gc
import hashlib
import json
from functools import cache
from typing import Any

from pagedviz.engine import replay
from pagedviz.engine.events import Event
from pagedviz.engine.snapshot import Snapshot

Data = dict[str, Any]
CACHE = {"num_layers": 2, "num_heads": 2, "num_kv_heads": 1, "head_dim": 8}
TOLERANCE = 1e-05


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


def answer(data: Data, asked: Data, wrong: bool = False, nan: bool = False) -> Data:
    """The answer to what the lens asks of a run. `wrong` spoils one value in the cache, as a wrong write would; `nan`
    makes the first block's keys NaN."""
    snapshot, seq = snapshot_of(data, asked["step"]), asked["seq_id"]
    row = json.dumps([snapshot.block_tables[seq], snapshot.tokens[seq]])
    names = ("seq_id", "layer", "head", "num_splits")
    return _answer(*(asked[name] for name in names), snapshot.num_blocks, snapshot.block_size, row, wrong, nan)


@cache
def _answer(
    seq_id: str,
    layer: int,
    head: int,
    num_splits: int,
    num_blocks: int,
    block_size: int,
    row: str,
    wrong: bool,
    nan: bool,
) -> Data:
    import torch

    from pagedviz.runtime.probes.lens import lens_answer

    gc.freeze()  # Streamlit collects garbage after each run, and torch brings a lot to look through
    block_row, tokens = json.loads(row)

    def drawn(*of: Any) -> torch.Tensor:
        seed = int.from_bytes(hashlib.sha256(repr(of).encode()).digest()[:7])
        return torch.randn(CACHE["head_dim"], generator=torch.Generator().manual_seed(seed))

    q = torch.stack([drawn("q", layer, of_head, tokens) for of_head in range(CACHE["num_heads"])])
    log_k, log_v = (
        torch.stack([drawn(name, layer, token, at) for at, token in enumerate(tokens)])[:, None] for name in "kv"
    )
    shape = (num_blocks, block_size, CACHE["num_kv_heads"], CACHE["head_dim"])
    k_cache, v_cache = torch.full(shape, torch.nan), torch.full(shape, torch.nan)
    for position in range(len(tokens)):
        block = block_row[position // block_size]
        if block is not None:
            k_cache[block, position % block_size] = log_k[position] + (
                torch.nan if nan and position < block_size else 0
            )
            v_cache[block, position % block_size] = log_v[position] + wrong * (position == 0)
    return lens_answer(
        seq_id=seq_id,
        layer=layer,
        head=head,
        num_splits=num_splits,
        q=q,
        k_cache=k_cache,
        v_cache=v_cache,
        block_row=block_row,
        seq_len=len(tokens),
        log_k=log_k,
        log_v=log_v,
        tolerance=TOLERANCE,
    )
