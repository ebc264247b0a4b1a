"""The stage: the component that replays a run's events in the browser, step by step."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st

HERE = Path(__file__).parent

# Streamlit takes one inline module. The files are ordinary ES modules that import each other; joined in this order,
# their import lines and `export` words are dropped and the one `export default`, in stage.js, is left.
MODULES = (
    "entries", "changes",
    "replay_blocks", "replay_requests", "replay_windows", "replay_drafts", "replay_tier", "replay",
    "dom", "colours", "hashes", "text", "slots", "concerned", "derive", "uses", "icons",
    "tables", "logical", "sequences", "beams", "requests", "physical", "tier",
    "bigpaint", "bigpool", "pools",
    "links", "panel", "timeline", "transport", "moves", "moves_serving", "motion",
    "lens_stops", "lens_turns", "lens_strips", "lens_marks", "lens_source", "lens", "keys", "stage",
)  # fmt: skip


def javascript() -> str:
    """All modules joined into one, with one `export default`."""
    joined = "\n".join((HERE / f"{name}.js").read_text(encoding="utf-8") for name in MODULES)
    joined = re.sub(r"^import [^;]*?from \"\./[\w.]+\";\n", "", joined, flags=re.MULTILINE)
    return re.sub(r"^export (?!default)", "", joined, flags=re.MULTILINE)


def css() -> str:
    """All style sheets, the general one first."""
    return "".join((HERE / f"{name}.css").read_text(encoding="utf-8") for name in ("stage", "serving", "lens"))


_component = st.components.v2.component("pagedviz_stage", css=css(), js=javascript())


def stage(
    data: dict[str, Any],
    key: str,
    on_at: Callable[[], None] | None = None,
    on_lens: Callable[[], None] | None = None,
) -> Any:
    """Show a run and let the learner step through it.

    `data` is the run as plain JSON: base snapshot, steps (event, sentence, source line), checks so far. Sending it
    again with the same `run` keeps the learner's step, whatever else has changed; another `run` starts at
    `data["step"]`. `data["goto"]`, {"nonce", "step", "play"}, is a wish; a larger nonce is a new one. Where the learner
    rests comes back a moment later as `stage(...).at`, {"run", "step", "nonce"}, with the nonce of the last wish that
    was heard, None until then; `on_at` is called when it changes.

    Where `data["cache"]` gives the model's sizes, the learner can open the kernel lens. What it asks for comes back as
    `stage(...).lens`, {"run", "step", "seq_id", "layer", "head", "num_splits"}, None while it is closed; `on_lens` is
    called when it changes. The answer is sent as `data["lens"]`, {"asked": what was asked, "answer": None or the
    answer}; the stage shows it only while it asks for just that.
    """

    def ignore() -> None: ...

    return _component(data=data, key=key, on_at_change=on_at or ignore, on_lens_change=on_lens or ignore)
