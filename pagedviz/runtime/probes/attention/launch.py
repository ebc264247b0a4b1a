"""The tensors of a step's launch, built again by the same function."""

from typing import Any

from pagedviz import probe
from pagedviz.runtime.computing.launch_input import launch_input
from pagedviz.runtime.running.recording import Moment


def answer(question: probe.Launch, moment: Moment) -> dict[str, Any]:
    """The step's launch: the kernel, and its index tensors as nested lists for the first group of layers. "groups" has
    the tables and slots of every group."""
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
