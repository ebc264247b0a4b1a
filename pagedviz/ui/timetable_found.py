"""Timetables below the stage: a row for each request, a column for each engine step."""

from typing import Any

import streamlit as st

from pagedviz.probe import Answer
from pagedviz.ui.address import plain
from pagedviz.ui.text_table import text_table

SAID = {
    "static_batches": "static batches",
    "running_first": "who runs first, then who waits",
    "prefill_first": "prompts first",
    "split": "prompts split",
    "never_split": "prompts in one piece",
    "first_chunk_fits": "admitted when the first chunk fits",
}


def show(answer: Answer) -> None:
    """Who computed how many tokens in which step: on the stage so far, then in each other way, to the end."""
    st.caption(
        "Tokens computed, by request and engine step. **Bold**: of its prompt. A dot: it is there and gets none."
    )
    _grid(answer, answer["stage"], "On the stage, so far")
    for table in answer["others"]:
        _grid(answer, table, " · ".join(SAID.get(name, name) for name in table["policies"]).capitalize())


def _grid(answer: Answer, table: dict[str, Any], name: str) -> None:
    steps, places = table["steps"], answer["max_num_seqs"]
    if not steps:
        st.caption(f"{name}: no step was taken.")
        return
    rows = [
        (f"**{plain(seq_id)}**", *(_cell(step, seq_id) for step in steps))
        for seq_id in answer["requests"]
        if any(seq_id in step["unfinished"] for step in steps)
    ]
    rows.append((f"of {table['budget']} tokens", *(sum(step["computed"].values()) for step in steps)))
    rows.append((f"of {places} places, idle", *(places - len(step["computed"]) or "" for step in steps)))
    took = f"{len(steps)} step{'' if len(steps) == 1 else 's'}, {len(steps) * places} places"
    st.markdown(f"**{name}**: {took}, {table['idle']} of them idle.")
    text_table(name, ("step", *(step["engine_step"] for step in steps)), rows)


def _cell(step: dict[str, Any], seq_id: str) -> object:
    if seq_id in step["computed"]:
        return f"**{step['computed'][seq_id]}**" if seq_id in step["prefilled"] else step["computed"][seq_id]
    return "·" if seq_id in step["unfinished"] else ""
