"""A prompt computed in several ways: what it reads, and how long other requests wait for their next words."""

from typing import Any

from pagedviz import probe
from pagedviz.engine.requests.timetable import StepCounts, waits
from pagedviz.probe import Refused
from pagedviz.runtime.probes.what_if.timetable import Served, served, table
from pagedviz.runtime.running.recording import Moment


def answer(question: probe.Chunks, moment: Moment) -> dict[str, Any]:
    """For each way its steps, and what the prompt of `request` cost."""
    own, others = served(moment, question.ways)
    if question.request not in own.submitted:
        known = ", ".join(own.submitted) or "none at all"
        raise Refused(f"There is no request {question.request} at this step; there is {known}.")
    return {
        "request": question.request,
        "max_num_seqs": None,
        "requests": own.submitted,
        "others": [
            {"policies": list(way.policies), **table(other), **_costs(question.request, other)} for way, other in others
        ],
    }


def _costs(seq_id: str, run: Served) -> dict[str, Any]:
    """`wait` is the longest wait of any other request from one word to the next: its steps, and the tokens of each."""
    there = [row for row in run.rows if seq_id in row.unfinished]
    chunks = [row for row in there if seq_id in row.prefilled]
    words = [i for i, row in enumerate(there, 1) if seq_id in row.sampled]
    if not words:
        raise Refused(f"{seq_id} was aborted before its first word, so its prompt was not computed.")
    others = [other for other in run.submitted if other != seq_id]
    longest = max((wait for other in others for wait in waits(run.rows, other)), key=_length, default=[])
    return {
        "chunks": len(chunks),
        "read": sum(row.read[seq_id] for row in chunks),
        "scores": sum(row.scores[seq_id] for row in chunks),
        "first_word": words[0],
        "most": max(row.num_tokens for row in run.rows),
        "wait": {
            "steps": len(longest),
            "tokens": sum(row.num_tokens for row in longest),
            "computed": [row.num_tokens for row in longest],
        },
    }


def _length(wait: list[StepCounts]) -> tuple[int, int]:
    return len(wait), sum(row.num_tokens for row in wait)
