"""The tensors that a step's launch was given, made again by what made them."""

from typing import Any

from pagedviz import probe
from pagedviz.runtime.computing.launch_input import launch_input
from pagedviz.runtime.running.recording import Moment


def answer(asked: probe.Launch, moment: Moment) -> dict[str, Any]:
    """The step's launch: which kernel, and its index tensors as nested lists, those of the first group of layers; in
    "groups" the tables and slots of each."""
    groups = [launch_input(moment.snapshot, moment.event, group) for group in range(len(moment.snapshot.windows))]
    launch = groups[0]
    return {
        "kernel": "paged_decode" if launch.is_decode else "paged_prefill",
        "block_size": moment.snapshot.block_size,
        "seq_ids": list(launch.seq_ids),
        "query_lens": list(launch.query_lens),
        "block_tables": launch.block_tables.tolist(),
        "seq_lens": launch.seq_lens.tolist(),
        "query_start_loc": launch.query_start_loc.tolist(),
        "slot_mapping": launch.slot_mapping.tolist(),
        "groups": [
            {
                "window": group.window,
                "block_tables": group.block_tables.tolist(),
                "slot_mapping": group.slot_mapping.tolist(),
            }
            for group in groups
        ],
    }
