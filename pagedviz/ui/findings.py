"""What a probe found, below the stage: one function for each kind of probe that a page may show."""

from collections.abc import Callable
from typing import Any

import streamlit as st

from pagedviz import probe
from pagedviz.probe import Answer, Probe


def show(asked: Probe, answer: Answer | None) -> None:
    """Show an answer, or that there is none yet, or why there is none."""
    if answer is None:
        st.caption("The compute process is being asked …")
    elif "refused" in answer:
        st.caption(str(answer["refused"]))
    else:
        SHOWN[type(asked)](answer)


def _launch(answer: Answer) -> None:
    """The tensors that one launch is given, each with its shape and dtype, as it would be printed."""
    tensors = {
        "block_tables": f"int32 [{len(answer['seq_lens'])}, {len((answer['block_tables'] or [[]])[0])}]",
        "seq_lens": f"int32 [{len(answer['seq_lens'])}]",
        "query_start_loc": f"int32 [{len(answer['query_start_loc'])}]",
        "slot_mapping": f"int64 [{len(answer['slot_mapping'])}]",
    }
    rows = " · ".join(f"row {i}: {seq_id}" for i, seq_id in enumerate(answer["seq_ids"]))
    st.caption(f"What this step's launch of `{answer['kernel']}` was given. {rows}")
    lines = [f"{name:16}{kind:14}{_printed(answer[name])}" for name, kind in tensors.items()]
    st.code("\n".join(lines), language=None)


def _printed(tensor: list[Any]) -> str:
    if not tensor or not isinstance(tensor[0], list):
        return str(tensor)
    width = max(len(str(entry)) for row in tensor for entry in row) if tensor[0] else 0
    rows = ["[" + ", ".join(f"{entry:>{width}}" for entry in row) + "]" for row in tensor]
    return "[" + (",\n" + " " * 31).join(rows) + "]"


SHOWN: dict[type[Probe], Callable[[Answer], None]] = {
    probe.Launch: _launch,
}
