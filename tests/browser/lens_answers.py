"""What the compute process answers the stage's kernel lens: the kernel's own report over the engine's own tables.

Torch is imported at the first question only, as most of the stage's tests ask none.
"""

import gc
import hashlib
import json
from types import SimpleNamespace
from typing import Any

from pagedviz.engine.log import replay
from pagedviz.engine.log.events.base import Event
from pagedviz.engine.log.snapshot import Snapshot

Data = dict[str, Any]
CACHE = {"num_layers": 2, "num_heads": 2, "num_kv_heads": 1, "head_dim": 8}


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


def answer(data: Data, asked: Data, wrong: bool = False, nan: bool = False, lost: bool = False) -> Data:
    """The answer to what the lens asks of a run. `wrong` spoils one value in the cache, as a wrong write would; `nan`
    makes the first block's keys NaN, `lost` the query, as a layer before that gave NaN would."""
    what = tuple(asked[name] for name in ("seq_id", "layer", "head", "num_splits"))
    snapshot = snapshot_of(data, asked["step"])
    key = json.dumps([what, snapshot.to_json(), wrong, nan, lost])
    if key not in _answered:
        _answered[key] = _answer(what, snapshot, wrong, nan, lost)
    return _answered[key]


_answered: dict[str, Data] = {}


def _answer(what: tuple[Any, ...], snapshot: Snapshot, wrong: bool, nan: bool, lost: bool) -> Data:
    import torch

    from pagedviz import probe
    from pagedviz.runtime import probes
    from pagedviz.runtime.checking.kv_log import LoggedSequence
    from pagedviz.runtime.running.recording import Moment
    from pagedviz.scenario.scenario import Scenario
    from pagedviz.scenario.settings import CacheConfig

    gc.freeze()  # Streamlit collects garbage after each run, and torch brings a lot to look through
    seq_id, layer, *_ = what
    tokens, row = snapshot.tokens[seq_id], snapshot.block_tables[seq_id]

    def drawn(*of: Any) -> torch.Tensor:
        seed = int.from_bytes(hashlib.sha256(repr(of).encode()).digest()[:7])
        return torch.randn(CACHE["head_dim"], generator=torch.Generator().manual_seed(seed))

    logged = LoggedSequence(CACHE["num_layers"])
    for at, token in enumerate(tokens):
        query = torch.stack([drawn("q", layer, head, list(tokens[: at + 1])) for head in range(2)])
        logged.q[layer].append(query * torch.nan if lost else query)
        logged.k[layer].append(drawn("k", layer, token, at)[None])
        logged.v[layer].append(drawn("v", layer, token, at)[None])
    shape = (CACHE["num_layers"], snapshot.num_blocks, snapshot.block_size, CACHE["num_kv_heads"], CACHE["head_dim"])
    kv = SimpleNamespace(k=torch.full(shape, torch.nan), v=torch.full(shape, torch.nan))
    kv.of_layer = lambda layer: (kv.k[layer], kv.v[layer])  # there is one group
    for at in range(len(tokens)):
        block, offset = row[at // snapshot.block_size], at % snapshot.block_size
        if block is not None:
            spoilt = torch.nan if nan and at < snapshot.block_size else 0
            kv.k[layer, block, offset] = logged.k[layer][at] + spoilt
            kv.v[layer, block, offset] = logged.v[layer][at] + wrong * (at == 0)
    cache = CacheConfig(num_blocks=snapshot.num_blocks, block_size=snapshot.block_size, **CACHE)
    moment = Moment(Scenario(0, cache), None, snapshot, kv, {seq_id: logged})  # type: ignore[arg-type]
    return probes.answer(probe.Lens(*what), moment)
