"""Bandwidth by block size on this machine's GPU, if it has one, measured once in a process."""

from functools import cache
from typing import Any

import torch

from kernels import launch
from pagedviz import probe
from pagedviz.runtime.measuring.bandwidth import decode_bandwidth
from pagedviz.runtime.running.recording import Moment

SIZES = (8, 16, 32, 64, 128, 256)


def answer(question: probe.Bandwidth, moment: Moment) -> dict[str, Any]:
    """The GPU's name and a row for each block size; no name and no rows where no kernel is compiled."""
    if not launch.COMPILED:
        return {"gpu": None, "rows": []}
    return {"gpu": torch.cuda.get_device_name(), "rows": _measured()}


@cache
def _measured() -> list[dict[str, float]]:
    return decode_bandwidth(SIZES)
