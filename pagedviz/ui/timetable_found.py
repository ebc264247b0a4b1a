"""Timetables below the stage: a row for each request, a column for each engine step; and what ways of chunking cost."""

from typing import Any

import streamlit as st

from pagedviz.probe import Answer
from pagedviz.ui.address import plain
from pagedviz.ui.text_table import text_table

SAID = {
    "static_batches": "static batches",
    "running_first": "who runs first",
    "prefill_first": "prompts first",
    "split": "split",
    "never_split": "in one piece",
    "whole_prompt_fits": "admitted when the whole prompt fits",
    "first_chunk_fits": "admitted when its first chunk fits",
}


def show(answer: Answer) -> None:
    """Who computed how many tokens in which step: on the stage so far, then in each other way, to the end."""
    tables = [(_name(table), table) for table in answer["others"]]
    _grids(answer, [("On the stage, so far", answer["stage"]), *tables])


def show_chunks(answer: Answer) -> None:
    """What each way of computing a prompt costs, and below it who computed in which step."""
    seq_id = plain(answer["request"])
    st.caption(
        f"{seq_id}'s prompt, computed in {len(answer['others'])} ways, each run to its end. K and V are counted once a "
        "chunk for each token it attends to, scores once for each token that asks. The wait is the longest of anybody "
        "else from one word to the next."
    )
    rows = [
        (
            f"**{_name(table)}**",
            table["budget"],
            table["chunks"],
            f"**{table['read']}**",
            table["scores"],
            table["first_word"],
            f"**{table['wait']['steps']}**",
            f"**{table['wait']['tokens']}**",
            table["most"],
        )
        for table in answer["others"]
    ]
    head = (
        "way",
        "budget",
        "chunks",
        "K and V read",
        "scores",
        f"steps to {seq_id}'s first word",
        "wait, steps",
        "wait, tokens",
        "most in a step",
    )
    text_table("Ways to compute a prompt", head, rows)
    with st.expander("Step by step"):
        _grids(answer, [(_name(table), table) for table in answer["others"]])


def _name(table: dict[str, Any]) -> str:
    return ", ".join(SAID.get(name, name) for name in table["policies"]).capitalize()


def _grids(answer: Answer, tables: list[tuple[str, dict[str, Any]]]) -> None:
    said = (
        "Tokens computed, by request and engine step; a submission has a step's number, too. **Bold**: of its prompt. "
        "A dot: it is there and gets none."
    )
    if any(step["preempted"] for _, table in tables for step in table["steps"]):
        said += " ✕: preempted."
    st.caption(said)
    for name, table in tables:
        _grid(answer, table, name)


def _grid(answer: Answer, table: dict[str, Any], name: str) -> None:
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
    took = f"{len(steps)} step{'' if len(steps) == 1 else 's'}"
    if seats is not None:
        rows.append((f"of {seats} seats, idle", *(seats - len(step["computed"]) or "" for step in steps)))
        took += f", {len(steps) * seats} seats, {table['idle']} of them idle"
    st.markdown(f"**{name}**: {took}.")
    text_table(name, ("step", *(step["engine_step"] for step in steps)), rows)


def _cell(step: dict[str, Any], seq_id: str) -> object:
    if seq_id in step["computed"]:
        return f"**{step['computed'][seq_id]}**" if seq_id in step["prefilled"] else step["computed"][seq_id]
    if seq_id in step["preempted"]:
        return "✕"
    return "·" if seq_id in step["unfinished"] else ""
