"""The learner's own run: a scenario that grows by operations, with undo. It lives in the session, and no change is lost
to a refusal: what the engine or the format would refuse is said in a sentence and leaves everything as it was."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import streamlit as st

from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.run import trace
from pagedviz.run.play import planner
from pagedviz.run.trace import Claims
from pagedviz.scenario import scenario as scenarios
from pagedviz.scenario.json_values import ScenarioError
from pagedviz.scenario.operations import Add, Op
from pagedviz.scenario.scenario import Scenario
from pagedviz.scenario.settings import CacheConfig, cache_from_json
from pagedviz.ui import address

START = Scenario(
    seed=1784,
    cache=CacheConfig(scatter=True),
    ops=(Add("A", ("Four", "score", "and", "seven", "years", "ago", "our")),),
)


@dataclass
class OwnRun:
    """`name` changes when another run takes the stage; growing and undoing keep it, and so the learner's step.
    `claims` are those of an uploaded trace, until all of it is computed again."""

    scenario: Scenario = START
    undone: list[tuple[Scenario, str]] = field(default_factory=list)
    number: int = 0
    message: str = ""
    claims: Claims | None = None

    @property
    def name(self) -> str:
        return f"own-{self.number}"

    def state(self) -> Snapshot:
        """The state after all operations, from a dry run of the engine."""
        return dry_run(self.scenario).state

    @property
    def num_steps(self) -> int:
        """Steps of the whole run, generated tokens included."""
        return dry_run(self.scenario).num_steps

    def do(self, op: Callable[[], Op]) -> bool:
        """Append an operation and return True, unless it would be refused: then only the message changes."""
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
        if self.undone:
            self.scenario, name = self.undone.pop()
            self.number += name != self.name
            self.message, self.claims = "", None
            self.write_address()

    def _take(self, changed: Scenario, new_stage: bool) -> None:
        if changed != self.scenario:
            self.undone.append((self.scenario, self.name))
        self.number += new_stage
        self.scenario, self.message, self.claims = changed, "", None
        self.write_address()

    def write_address(self) -> None:
        """Put this run into the address. The run that everybody starts with needs no words."""
        word = address.encode(self.scenario)
        if word == st.query_params.get("scenario") or (self.scenario == START and "scenario" not in st.query_params):
            return
        if word is None:
            self.message = "This run is too long for a link, so the address does not hold it: export the file instead."
        st.query_params.from_dict({"page": "sequences", **({"scenario": word} if word else {})})


def own_run() -> OwnRun:
    """This session's run; the first time, the one that the address holds."""
    if "own" not in st.session_state:
        run = st.session_state["own"] = OwnRun()
        word = st.query_params.get("scenario")
        if word:
            try:
                run.scenario = address.decode(word)
            except ScenarioError as error:
                run.message = f"Not loaded: {error}."
    own: OwnRun = st.session_state["own"]
    return own


@dataclass(frozen=True)
class DryRun:
    """What the engine would do, with the words of the dense model. `refusal` is why the last operation is refused, if
    it is."""

    refusal: str
    state: Snapshot
    num_steps: int


@lru_cache(maxsize=64)
def dry_run(scenario: Scenario) -> DryRun:
    player = planner(scenario.cache, scenario.seed)
    refusal, state, num_steps = "", player.base, 0
    for op in scenario.ops:
        for happening in player.perform(op):
            refusal = str(happening.refused["sentence"]) if happening.refused else ""
            state, num_steps = happening.snapshot, num_steps + 1
    return DryRun(refusal, state, num_steps)
