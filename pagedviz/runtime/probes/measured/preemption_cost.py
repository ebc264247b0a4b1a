"""Swap and recompute, timed here and now where there is a GPU to time them on, once in a process."""

from functools import cache
from typing import Any

import torch

import kernels
from kernels import launch
from pagedviz import probe
from pagedviz.runtime.measuring.preemption_cost import Decoder, preemption_cost
from pagedviz.runtime.running.recording import Moment

SIZES = (1, 4, 16)


def answer(asked: probe.PreemptionCost, moment: Moment) -> dict[str, Any]:
    """The GPU's name and a row for each block size; no name and no rows where no kernel is compiled."""
    shape = Decoder()
    said = {"num_tokens": shape.num_tokens, "num_layers": shape.num_layers, "backend": kernels.backend_name()}
    if not launch.COMPILED:
        return {**said, "gpu": None, "rows": []}
    return {**said, "gpu": torch.cuda.get_device_name(), "rows": _measured()}


@cache
def _measured() -> list[dict[str, Any]]:
    return preemption_cost(SIZES)
