"""Answers to probes. Each has a file: a function from a probe and a moment of a run to plain JSON, or `Refused`."""

import math
from collections.abc import Callable
from typing import Any

from pagedviz import probe
from pagedviz.probe import Probe, Refused
from pagedviz.runtime.probes import too_large
from pagedviz.runtime.probes.attention import flash_and_paged, launch, lazy_rescale, lens, unchained_hit
from pagedviz.runtime.probes.measured import bandwidth, preemption_cost
from pagedviz.runtime.probes.what_if import block_sizes, chunks, orders, radix, swap_or_recompute, timetable
from pagedviz.runtime.running.recording import Moment


def answer(question: Probe, moment: Moment) -> dict[str, Any]:
    """Answer a probe at a moment. An answer with a number that is not finite is refused: JSON cannot hold it."""
    try:
        answers = ANSWERS[type(question)](question, moment)
    except Refused as refused:
        return {"refused": str(refused)}
    except Exception as error:
        sentence = too_large.sentence(error, moment.scenario.cache)
        if sentence is None:
            raise
        return {"refused": sentence}
    if not _finite(answers):
        return {"refused": probe.NOT_FINITE}
    return answers


def _finite(value: Any) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case dict():
            return all(map(_finite, value.values()))
        case list() | tuple():
            return all(map(_finite, value))
    return True


ANSWERS: dict[type[Probe], Callable[[Any, Moment], dict[str, Any]]] = {
    probe.Bandwidth: bandwidth.answer,
    probe.BlockSizes: block_sizes.answer,
    probe.Chunks: chunks.answer,
    probe.FlashAndPaged: flash_and_paged.answer,
    probe.Launch: launch.answer,
    probe.LazyRescale: lazy_rescale.answer,
    probe.Lens: lens.answer,
    probe.Orders: orders.answer,
    probe.PreemptionCost: preemption_cost.answer,
    probe.Radix: radix.answer,
    probe.SwapOrRecompute: swap_or_recompute.answer,
    probe.Timetable: timetable.answer,
    probe.UnchainedHit: unchained_hit.answer,
}
