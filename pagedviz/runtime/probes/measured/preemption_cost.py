"""Times of swap and recompute on this machine's GPU, if it has one, measured once in a process."""

from functools import cache
from typing import Any

import torch

import kernels
from kernels import launch
from pagedviz import probe
from pagedviz.runtime.measuring.preemption_cost import Decoder, preemption_cost
from pagedviz.runtime.running.recording import Moment

SIZES = (1, 4, 16)


def answer(question: probe.PreemptionCost, moment: Moment) -> dict[str, Any]:
    """The GPU's name and a row for each block size; no name and no rows where no kernel is compiled."""
    shape = Decoder()
    shown = {"num_tokens": shape.num_tokens, "num_layers": shape.num_layers, "backend": kernels.backend_name()}
    if not launch.COMPILED:
        return {**shown, "gpu": None, "rows": []}
    return {**shown, "gpu": torch.cuda.get_device_name(), "rows": _measured()}


@cache
def _measured() -> list[dict[str, Any]]:
    return preemption_cost(SIZES)
