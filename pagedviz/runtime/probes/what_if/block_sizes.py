"""A run played again under other block sizes, with the same kernels and a pool of as many slots."""

from dataclasses import replace
from itertools import takewhile
from typing import Any

from pagedviz import probe
from pagedviz.engine.log.events.base import OperationRefused
from pagedviz.engine.log.events.blocks import BlockCopied
from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.engine.policies.profiles import PROFILES
from pagedviz.probe import Refused, whole_number
from pagedviz.run.memory import memory
from pagedviz.runtime.checking.tolerance import TOLERANCE
from pagedviz.runtime.running.recording import Moment
from pagedviz.runtime.running.runner import Runner
from pagedviz.scenario.settings import RANGES, CacheConfig


def answer(question: probe.BlockSizes, moment: Moment) -> dict[str, Any]:
    """A row of counts for each block size, and the largest error against dense attention in the whole run.

    They are counted at the end of the operation `after`, in which the moment lies. Within an operation blocks of
    another size take other steps, so there is no state to compare.
    """
    for size in question.sizes:
        whole_number("block_size", size, *RANGES["block_size"])
    rows = [_row(size, question, moment) for size in question.sizes]
    return {"pair": list(question.pair), "after": after(moment), "tolerance": TOLERANCE, "rows": rows}


def after(moment: Moment) -> str:
    """The operation in which the moment lies, as text."""
    return str(moment.scenario.ops[-1]) if moment.scenario.ops else ""


def _row(size: int, question: probe.BlockSizes, moment: Moment) -> dict[str, Any]:
    cache = cut(moment.scenario.cache, size)
    runner = Runner(cache, moment.scenario.seed)
    played = [step for op in moment.scenario.ops for step in runner.play(op)]
    refused = [happening.op for happening, _ in played if isinstance(happening.event, OperationRefused)]
    if refused:
        raise Refused(f"With blocks of {size}, the pool is too small for “{refused[0]}”.")
    state = played[-1][0].snapshot if played else runner.player.base
    for seq_id in question.pair:
        if seq_id not in state.tokens:
            raise Refused(f"There is no sequence {seq_id} after “{after(moment)}”.")
    copies = sum(isinstance(happening.event, BlockCopied) for happening, _ in played)
    used = memory(state)
    return {
        "block_size": size,
        "num_blocks": cache.num_blocks,
        "wasted": used.unfilled,
        "entries": used.entries,
        "copies": copies,
        "bytes_copied": copies * cache.bytes_per_block,
        "hit": hit(state, *question.pair),
        "max_error": max((error for _, error in played), default=0.0),
    }


def cut(cache: CacheConfig, size: int) -> CacheConfig:
    """The same slots in blocks of another size; a profile's null block is added to them."""
    null = int(PROFILES[cache.profile].null_block)
    slots, host_slots = (cache.num_blocks - null) * cache.block_size, cache.host_blocks * cache.block_size
    return replace(cache, block_size=size, num_blocks=slots // size + null, host_blocks=host_slots // size)


def hit(state: Snapshot, one: str, other: str) -> int:
    """Tokens in the leading blocks that both sequences have full, with equal tokens."""
    size = state.block_size
    blocks = zip(*(_full_blocks(state, seq_id) for seq_id in (one, other)), strict=False)
    return size * sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], blocks))


def _full_blocks(state: Snapshot, seq_id: str) -> list[tuple[Any, ...]]:
    size, tokens = state.block_size, state.tokens[seq_id]
    return [
        tokens[j * size : (j + 1) * size]
        for j in range(len(state.block_tables[seq_id]))
        if state.filled(seq_id, j) == size
    ]
