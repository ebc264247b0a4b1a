"""Timetables: tables with a row for each request and a column for each engine step."""

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from pagedviz.probe import Answer
from pagedviz.ui.elements.markdown import plain
from pagedviz.ui.elements.text_table import text_table

POLICY_NAMES = {
    "static_batches": "static batches",
    "running_first": "who runs first",
    "prefill_first": "prompts first",
    "split": "split",
    "never_split": "in one piece",
    "whole_prompt_fits": "admitted when the whole prompt fits",
    "first_chunk_fits": "admitted when its first chunk fits",
}


def name_of(table: Mapping[str, Any]) -> str:
    """The policies by which a run was served, in words."""
    return ", ".join(POLICY_NAMES.get(name, name) for name in table["policies"]).capitalize()


def show_timetables(answer: Answer, tables: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Show timetables, each below its name. `answer` has the requests, and the seats where they are counted."""
    legend = (
        "Tokens computed, by request and engine step; a submission has a step's number, too. **Bold**: of its prompt. "
        "A dot: it is there and gets none."
    )
    if any(step["preempted"] for _, table in tables for step in table["steps"]):
        legend += " ✕: preempted."
    st.caption(legend)
    for name, table in tables:
        _grid(answer, table, name)


def _grid(answer: Answer, table: Mapping[str, Any], name: str) -> None:
    steps, seats = table["steps"], answer["max_num_seqs"]
    if not steps:
        st.caption(f"{name}: no step was taken.")
        return
    rows = [
        (f"**{plain(seq_id)}**", *(_cell(step, seq_id) for step in steps))
        for seq_id in answer["requests"]
        if any(seq_id in step["unfinished"] for step in steps)
    ]
    rows.append((f"of {table['budget']} tokens", *(sum(step["computed"].values()) for step in steps)))
    summary = f"{len(steps)} step{'' if len(steps) == 1 else 's'}"
    if seats is not None:
        rows.append((f"of {seats} seats, idle", *(seats - len(step["computed"]) or "" for step in steps)))
        summary += f", {len(steps) * seats} seats, {table['idle']} of them idle"
    st.markdown(f"**{name}**: {summary}.")
    text_table(name, ("step", *(step["engine_step"] for step in steps)), rows)


def _cell(step: Mapping[str, Any], seq_id: str) -> object:
    if seq_id in step["computed"]:
        return f"**{step['computed'][seq_id]}**" if seq_id in step["prefilled"] else step["computed"][seq_id]
    if seq_id in step["preempted"]:
        return "✕"
    return "·" if seq_id in step["unfinished"] else ""
