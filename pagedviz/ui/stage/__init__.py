"""The stage: the component that replays a run's events in the browser, step by step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st

from pagedviz.ui.stage.bundle import bundle

HERE = Path(__file__).parent

STYLES = ("stage", "serving", "lens")  # in this order: the later may overrule the earlier


def modules() -> dict[str, str]:
    """The text of each of the stage's modules, by its path."""
    return {path.relative_to(HERE).as_posix(): path.read_text(encoding="utf-8") for path in HERE.rglob("*.js")}


_component = st.components.v2.component(
    "pagedviz_stage",
    css="".join((HERE / f"css/{name}.css").read_text(encoding="utf-8") for name in STYLES),
    js=bundle(modules(), "stage.js"),
)


def stage(
    data: dict[str, Any],
    key: str,
    on_at: Callable[[], None] | None = None,
    on_lens: Callable[[], None] | None = None,
) -> Any:
    """Show a run and let the learner step through it.

    `data` is the run as plain JSON: base snapshot, steps (event, sentence, source line), checks so far. Sending it
    again with the same `run` keeps the learner's step, whatever else has changed; another `run` starts at
    `data["step"]`. `data["goto"]`, {"nonce", "step", "play"}, asks the stage to go to a step; each new nonce is a new
    request. A moment after the learner rests at a step, it comes back as `stage(...).at`, {"run", "step", "nonce"},
    with the nonce of the last `goto` that was followed. It is None until then; `on_at` is called when it changes.

    Where `data["cache"]` gives the model's sizes, the learner can open the kernel lens. What it asks for comes back as
    `stage(...).lens`, {"run", "step", "seq_id", "layer", "head", "num_splits"}, None while it is closed; `on_lens` is
    called when it changes. The answer is sent as `data["lens"]`, {"asked": what was asked, "answer": None or the
    answer}; the stage shows it only while it asks for just that.
    """

    def ignore() -> None: ...

    return _component(data=data, key=key, on_at_change=on_at or ignore, on_lens_change=on_lens or ignore)
