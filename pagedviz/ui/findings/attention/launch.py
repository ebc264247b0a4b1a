"""Launch: the tensors that the launch of a step was given."""

from typing import Any

import streamlit as st

from pagedviz.engine.policies.windows import first_seen
from pagedviz.probe import Answer
from pagedviz.ui.elements.text_table import text_table


def show(answer: Answer) -> None:
    """Show a row for each sequence and group, then the tensors as they would be printed."""
    st.caption(
        f"What this step's launch of `{answer['kernel']}` was given, cut by sequence. `Numbers like this` are used, "
        "others are padding" + (" or out of the window." if any(g["window"] for g in answer["groups"]) else ".")
    )
    starts, several = answer["query_start_loc"], len(answer["groups"]) > 1
    rows: list[tuple[object, ...]] = []
    for i, seq_id in enumerate(answer["seq_ids"]):
        first, stop = starts[i], starts[i + 1]
        asking = str(first) if stop == first + 1 else f"{first} … {stop - 1}"
        for number, group in enumerate(answer["groups"]):
            used = _attended(answer, i, group["window"])
            entries = [f"`{b}`" if j in used else str(b) for j, b in enumerate(group["block_tables"][i])]
            slots = [f"`{slot}`" if slot >= 0 else str(slot) for slot in group["slot_mapping"][first:stop]]
            of_group = (_of_group(number, group["window"]),) if several else ()
            rows.append((f"**{seq_id}**", *of_group, " ".join(entries), answer["seq_lens"][i], asking, " ".join(slots)))
    head = ("sequence", *(["group"] * several), "its row of block_tables", "seq_lens", "its rows of q", "slot_mapping")
    text_table("The launch by sequence", head, rows)
    lines = []
    for number, group in enumerate(answer["groups"]):
        lines += [f"# group {_of_group(number, group['window'])}"] if several else []
        lines.append(_tensor("block_tables", "int32", group["block_tables"]))
        lines.append(_tensor("slot_mapping", "int64", group["slot_mapping"]))
    lines += ["# every group"] if several else []
    lines += [_tensor(name, "int32", answer[name]) for name in ("seq_lens", "query_start_loc")]
    st.code("\n".join(lines), language=None)


def _attended(answer: Answer, i: int, window: int | None) -> range:
    """The logical blocks that the rows of q of sequence `i` attend to."""
    size, seq_len = max(1, answer["block_size"]), answer["seq_lens"][i]
    first_query = seq_len - answer["query_lens"][i]
    return range(first_seen(first_query, window) // size, -(-seq_len // size))


def _of_group(number: int, window: int | None) -> str:
    return f"{number}, full attention" if window is None else f"{number}, window {window}"


def _tensor(name: str, kind: str, numbers: list[Any]) -> str:
    shape = str(len(numbers)) + (f", {len((numbers or [[]])[0])}" if name == "block_tables" else "")
    return f"{name:16}{f'{kind} [{shape}]':14}{_printed(numbers)}"


def _printed(tensor: list[Any]) -> str:
    if not tensor or not isinstance(tensor[0], list):
        return str(tensor)
    width = max(len(str(entry)) for row in tensor for entry in row) if tensor[0] else 0
    rows = ["[" + ", ".join(f"{entry:>{width}}" for entry in row) + "]" for row in tensor]
    return "[" + (",\n" + " " * 31).join(rows) + "]"
