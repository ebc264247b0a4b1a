"""A run played again with other block sizes and preemptions: what is copied, computed again and hit."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NoReturn

import torch

import kernels
from pagedviz import probe
from pagedviz.engine.log.events.base import Event, OperationRefused
from pagedviz.engine.log.events.blocks import BlockHit, Written
from pagedviz.engine.log.events.requests import RequestPreempted, RequestSwappedIn
from pagedviz.engine.log.events.transfers import BlockReloaded, BlockSpilled
from pagedviz.probe import Refused, whole_number
from pagedviz.run.play import Player
from pagedviz.runtime.measuring import swaps
from pagedviz.runtime.measuring.swaps import CountedTransfers
from pagedviz.runtime.probes.what_if import block_sizes
from pagedviz.runtime.running.recording import Moment
from pagedviz.scenario.operations import EngineSteps
from pagedviz.scenario.scenario import Scenario
from pagedviz.scenario.settings import RANGES, CacheConfig

Moved = BlockSpilled | BlockReloaded


def answer(question: probe.SwapOrRecompute, moment: Moment) -> dict[str, Any]:
    """A row of counts for each preemption and block size, at the end of the operation in which the moment lies.

    `out` and `back` count the traffic between device and host: blocks, bytes, copies of one block of one tensor, and
    `staged`, the copies that the real transfers make for all of a request's blocks at once.
    """
    for size in question.sizes:
        whole_number("block_size", size, *RANGES["block_size"])
    for name in question.preemptions:
        if name not in probe.PREEMPTIONS:
            raise Refused(f"There is no preemption {name!r}; there is {', '.join(probe.PREEMPTIONS)}.")
    rows = [_row(name, size, moment.scenario) for name in question.preemptions for size in question.sizes]
    return {"after": block_sizes.after(moment), "num_layers": moment.scenario.cache.num_layers, "rows": rows}


def _row(name: str, size: int, scenario: Scenario) -> dict[str, Any]:
    preemption, prefix_caching = probe.PREEMPTIONS[name]
    policies = tuple(sorted({**dict(scenario.cache.policies), "preemption": preemption}.items()))
    cut = block_sizes.cut(scenario.cache, size)
    cache = replace(cut, policies=policies, prefix_caching=prefix_caching)
    events = _played(cache, scenario)
    preempted = [event for event in events if isinstance(event, RequestPreempted)]
    return {
        "preemption": name,
        "block_size": size,
        "preempted": [{"seq_id": event.seq_id, "how": event.how, "had": event.num_tokens} for event in preempted],
        **_moved(cache, events),
        "again": _computed_again(events),
        "hit": _hit(events),
    }


def _played(cache: CacheConfig, scenario: Scenario) -> list[Event]:
    player = Player(cache, scenario.seed, _given)
    happenings = [happening for op in scenario.ops for happening in player.perform(op)]
    for happening in happenings:
        # A refused step does not matter: this run needed fewer steps.
        if isinstance(happening.event, OperationRefused) and not isinstance(
            scenario.ops[happening.op_index], EngineSteps
        ):
            raise Refused(f"With blocks of {cache.block_size}, “{happening.op}” is refused.")
    return [happening.event for happening in happenings]


def _given(seq_id: str, position: int) -> NoReturn:
    raise Refused(f"Only words that were given can be played again, and {seq_id} generates its own.")


def _moved(cache: CacheConfig, events: Sequence[Event]) -> dict[str, dict[str, int]]:
    """Make every swap with random bits, block by block and staged, and count the copies. Raises if a bit differs."""
    shape = (2 * cache.num_layers, cache.num_blocks, cache.block_size, cache.num_kv_heads, cache.head_dim)
    device = torch.randint(2**31, shape, dtype=torch.int32, device=kernels.device()).view(torch.float32)
    transfers, plain = CountedTransfers(device, cache.host_blocks), device.clone()
    host = torch.empty_like(transfers.host)
    counts = {direction: dict.fromkeys(("blocks", "copies", "staged", "bytes"), 0) for direction in ("out", "back")}
    for kind, moves in _swaps(events):
        blocks, host_blocks = [move.block for move in moves], [move.host_block for move in moves]
        pairs, staged = swaps.one_by_one(plain, blocks, host, host_blocks), transfers.copies
        if kind is BlockSpilled:
            swaps.out(pairs)
            transfers.spill(blocks, host_blocks)
        else:
            swaps.back(pairs)
            transfers.reload(host_blocks, blocks)
        transfers.claim()
        assert torch.equal(plain.view(torch.int32), device.view(torch.int32)), "a staged swap gave other bits"
        count = counts["out" if kind is BlockSpilled else "back"]
        count["blocks"] += len(blocks)
        count["copies"] += len(pairs)
        count["staged"] += transfers.copies - staged
        count["bytes"] += sum(held.nbytes for held, _ in pairs)
    return counts


def _swaps(events: Iterable[Event]) -> list[tuple[type[Moved], list[Moved]]]:
    """The blocks that moved together: for one request, in one direction."""
    marks = [event for event in events if isinstance(event, Moved | RequestPreempted | RequestSwappedIn)]
    groups = [(kind, list(group)) for kind, group in groupby(marks, type)]
    return [(kind, group) for kind, group in groups if kind in (BlockSpilled, BlockReloaded)]  # type: ignore[misc]


def _computed_again(events: Iterable[Event]) -> int:
    """Tokens written to a position that their sequence had written before."""
    computed: dict[str, int] = {}
    again = 0
    for event in events:
        for seq_id, position, tokens, _ in event.writes if isinstance(event, Written) else ():
            end, before = position + len(tokens), computed.get(seq_id, 0)
            again += max(0, min(before, end) - position)
            computed[seq_id] = max(before, end)
    return again


def _hit(events: Iterable[Event]) -> int:
    """Tokens that a request hit in the cache after its preemption."""
    preempted: set[str] = set()
    hit = 0
    for event in events:
        if isinstance(event, RequestPreempted):
            preempted.add(event.seq_id)
        elif isinstance(event, BlockHit) and event.seq_id in preempted:
            hit += len(event.tokens)
    return hit
