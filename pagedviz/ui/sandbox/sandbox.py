"""The learner's sandbox: a scenario that grows by operations, with undo. It lives in the session.

Where the engine or the format refuses a change, a sentence says why, and everything stays as it was.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import streamlit as st

from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.run import trace
from pagedviz.run.trace import Claims
from pagedviz.scenario import scenario as scenarios
from pagedviz.scenario.json_values import ScenarioError
from pagedviz.scenario.operations import Add, Op
from pagedviz.scenario.scenario import Scenario
from pagedviz.scenario.settings import CacheConfig, cache_from_json
from pagedviz.ui import address
from pagedviz.ui.sandbox.dry_run import dry_run

START = Scenario(
    seed=1784,
    cache=CacheConfig(scatter=True),
    ops=(Add("A", ("Four", "score", "and", "seven", "years", "ago", "our")),),
)


@dataclass
class Sandbox:
    """The scenario at hand, and the scenarios before it with their names.

    The stage knows a run by its `name`. Doing and undoing operations keep it, so the stage stays at the learner's step;
    another cache or a loaded file gets another name. `message` says why the last change was refused. `claims` are those
    of an uploaded trace, until the scenario changes.
    """

    scenario: Scenario = START
    before: list[tuple[Scenario, str]] = field(default_factory=list)
    number: int = 0
    message: str = ""
    claims: Claims | None = None

    @property
    def name(self) -> str:
        return f"sandbox-{self.number}"

    def state(self) -> Snapshot:
        """The state after all operations, from a dry run of the engine."""
        return dry_run(self.scenario).state

    @property
    def num_steps(self) -> int:
        """Steps of the whole run, generated tokens included."""
        return dry_run(self.scenario).num_steps

    def do(self, op: Callable[[], Op]) -> bool:
        """Append an operation and return True; or, where it would be refused, set the message and return False."""
        try:
            grown = self.scenario.with_ops(op())
        except ScenarioError as error:
            self.message = f"Refused: {error}."
            return False
        refusal = dry_run(grown).refusal
        if refusal:
            self.message = f"Refused: {refusal}"
            return False
        self._take(grown, new_stage=False)
        return True

    def set_cache(self, settings: Callable[[], dict[str, Any]], seed: int) -> None:
        """Play the same operations on another cache."""
        try:
            changed = replace(self.scenario, cache=cache_from_json(settings()), seed=seed)
        except ScenarioError as error:
            self.message = f"Refused: {error}."
            return
        self._take(changed, new_stage=True)

    def load(self, source: str | bytes) -> None:
        """Take a scenario or a trace, as text; a trace is computed again and compared."""
        try:
            if b'"pagedviz_trace"' in (source.encode() if isinstance(source, str) else source)[:200]:
                loaded, claims = trace.parse(source)
            else:
                loaded, claims = scenarios.parse(source), None
        except ScenarioError as error:
            self.message = f"Not loaded: {error}."
            return
        self._take(loaded, new_stage=True)
        self.claims = claims

    def undo(self) -> None:
        if self.before:
            self.scenario, name = self.before.pop()
            self.number += name != self.name
            self.message, self.claims = "", None
            self.write_address()

    def _take(self, changed: Scenario, new_stage: bool) -> None:
        if changed != self.scenario:
            self.before.append((self.scenario, self.name))
        self.number += new_stage
        self.scenario, self.message, self.claims = changed, "", None
        self.write_address()

    def write_address(self) -> None:
        """Put the scenario into the address. The first one, START, is not written where the address has none."""
        word = address.encode(self.scenario)
        if word == st.query_params.get("scenario") or (self.scenario == START and "scenario" not in st.query_params):
            return
        if word is None:
            self.message = "This run is too long for a link, so the address does not hold it: export the file instead."
        st.query_params.from_dict({"page": "sequences", **({"scenario": word} if word else {})})


def session_sandbox() -> Sandbox:
    """This session's sandbox. When it is made, it takes the scenario of the address, if there is one."""
    if "sandbox" not in st.session_state:
        made = st.session_state["sandbox"] = Sandbox()
        word = st.query_params.get("scenario")
        if word:
            try:
                made.scenario = address.decode(word)
            except ScenarioError as error:
                made.message = f"Not loaded: {error}."
    sandbox: Sandbox = st.session_state["sandbox"]
    return sandbox
