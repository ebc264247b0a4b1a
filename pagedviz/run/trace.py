"""What a run leaves behind: steps with their verdicts, to and from versioned JSON."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pagedviz.engine.log.events.base import PHRASES, Event
from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.run.play import Happening
from pagedviz.run.source import SourceLine
from pagedviz.scenario import scenario as scenarios
from pagedviz.scenario.json_values import ScenarioError, show
from pagedviz.scenario.scenario import Scenario

# 1: each token of a prompt was an event of its own; 2: no prefix caching; 3: one sequence a request;
# 4: two kinds of event had other names, so it is still read.
VERSION = 5
RENAMED = {"TierStoreAborted": "TierStoreCancelled", "TierLoadAborted": "TierLoadCancelled"}

# Of a check, what every machine must find again; errors and times differ by rounding and speed.
VERDICT = ("ok", "compared", "num_layers", "failed_sequences")

ROUNDING = 1e-3  # of a score: how much a sum of log-probabilities may differ from machine to machine


@dataclass(frozen=True)
class Check:
    """What the kernels said about one state.

    `max_error`: largest |paged - dense| over `compared` sequences and `num_layers` layers; None when it is not finite.
    `broken`: a sentence for each broken invariant, of `num_invariants`. `milliseconds`: computing and comparing.
    `weights`: attention weight of the newest token of the step's sequence, last layer, [num_heads][num_blocks]; each
    row sums to 1. `failed`: the sequences whose error passed the tolerance or whose bytes differ from the log.
    """

    max_error: float | None
    tolerance: float
    compared: int
    num_layers: int
    broken: tuple[str, ...]
    num_invariants: int
    backend: str
    milliseconds: float
    weights: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)
    failed: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.max_error is not None and self.max_error <= self.tolerance and not self.broken

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "max_error": self.max_error,
            "tolerance": self.tolerance,
            "compared": self.compared,
            "num_layers": self.num_layers,
            "invariants": list(self.broken),
            "num_invariants": self.num_invariants,
            "backend": self.backend,
            "ms": round(self.milliseconds, 2),
            "weights": dict(self.weights),
            "failed_sequences": list(self.failed),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Check":
        return Check(
            max_error=data["max_error"],
            tolerance=data["tolerance"],
            compared=data["compared"],
            num_layers=data["num_layers"],
            broken=tuple(data["invariants"]),
            num_invariants=data["num_invariants"],
            backend=data["backend"],
            milliseconds=data["ms"],
            weights=data["weights"],
            failed=tuple(data["failed_sequences"]),
        )


@dataclass(frozen=True)
class Step:
    """One event, why, and where in our source it came from. A refused operation is a step that changed nothing."""

    event: Event
    op_index: int
    op: str
    source: SourceLine
    refused: Mapping[str, Any] | None

    @staticmethod
    def of(happening: Happening) -> "Step":
        return Step(happening.event, happening.op_index, happening.op, happening.source, happening.refused)

    @property
    def sentence(self) -> str:
        return str(self.refused["sentence"]) if self.refused else self.event.sentence

    def to_json(self) -> dict[str, Any]:
        return {
            "event": self.event.to_json(),
            "sentence": self.sentence,
            "refused": self.refused,
            "op_index": self.op_index,
            "op": self.op,
            "source": asdict(self.source),
        }

    def agrees(self, other: "Step") -> bool:
        """The same happened; scores and confidences may differ by rounding."""
        return self == other or alike(computed(self.to_json()), computed(other.to_json()))

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Step":
        return Step(
            event=Event.from_json(data["event"]),
            op_index=data["op_index"],
            op=data["op"],
            source=SourceLine(**data["source"]),
            refused=data["refused"],
        )


def computed(step: Mapping[str, Any]) -> dict[str, Any]:
    """A step as plain data, without what is derived from it: its source line, its sentences and their phrases."""
    kept = {name: value for name, value in step.items() if name not in ("source", "sentence")}
    if isinstance(refused := step.get("refused"), dict):
        kept["refused"] = {name: value for name, value in refused.items() if name != "sentence"}
    if isinstance(event := step.get("event"), dict):
        kept["event"] = {name: value for name, value in event.items() if name not in PHRASES}
    return kept


def alike(one: Any, other: Any) -> bool:
    """Plain data that is equal, but for what rounding does to its fractions."""
    match one, other:
        case float(), float():
            return math.isclose(one, other, rel_tol=0, abs_tol=ROUNDING)
        case dict(), dict():
            return one.keys() == other.keys() and all(alike(value, other[key]) for key, value in one.items())
        case ((list() | tuple()), (list() | tuple())):
            return len(one) == len(other) and all(map(alike, one, other))
    return type(one) is type(other) and bool(one == other)


def to_json(scenario: Scenario, backend: str, steps: Sequence[tuple[Step, Snapshot, Check | None]]) -> dict[str, Any]:
    """A whole run. `ok` is true when every step has been checked and every verdict is good."""
    return {
        "pagedviz_trace": VERSION,
        "ok": all(check is not None and check.ok for _, _, check in steps),
        "backend": backend,
        "scenario": scenario.to_json(),
        "steps": [
            {**step.to_json(), "snapshot": snapshot.to_json(), "check": check.to_json() if check else None}
            for step, snapshot, check in steps
        ],
    }


@dataclass(frozen=True)
class Claims:
    """What a trace says of its run, as plain data that may be anything: "ok" of it all, and each step."""

    ok: Any
    steps: list[Any]


def parse(source: str | bytes) -> tuple[Scenario, Claims]:
    """Read a trace from JSON text: the scenario that made it, and what it says of the run.

    These are only claims until all has been computed again. Raises ScenarioError with one clear sentence.
    """
    try:
        data = json.loads(source)
    except (ValueError, RecursionError):  # not UTF-8, not JSON, or an integer longer than Python reads
        raise ScenarioError("the file is not JSON in UTF-8, so it is no trace") from None
    if not isinstance(data, dict) or "pagedviz_trace" not in data:
        raise ScenarioError(f'the file is no trace: a trace says "pagedviz_trace": {VERSION}')
    version = data["pagedviz_trace"]
    if type(version) is not int or version not in (4, VERSION):
        raise ScenarioError(f"the trace has version {show(version)}; versions 4 and {VERSION} are read")
    if not isinstance(data.get("steps"), list):
        raise ScenarioError('the trace has no list of "steps"')
    steps = list(map(_renamed, data["steps"])) if version == 4 else data["steps"]
    return scenarios.from_json(data.get("scenario")), Claims(data.get("ok"), steps)


def _renamed(step: Any) -> Any:
    """A step of version 4 with the name that its kind of event has now."""
    if not isinstance(step, dict) or not isinstance(event := step.get("event"), dict):
        return step
    kind = event.get("kind")
    return {**step, "event": {**event, "kind": RENAMED.get(kind, kind) if isinstance(kind, str) else kind}}
