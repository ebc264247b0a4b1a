"""A scenario is a cache and a list of operations, as data. This module reads and checks one.

The same scenario is a lesson's run, a link, an export and a test case. `docs/scenario.md` documents the format.
"""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from pagedviz.scenario import json_values, operations
from pagedviz.scenario.json_values import MAX_TOKENS, ScenarioError, show
from pagedviz.scenario.operations import (
    MAX_STEPS,
    EngineSteps,
    Op,
)
from pagedviz.scenario.settings import USUAL, CacheConfig, cache_from_json

VERSION = 1

# Limits, each with its unit. They keep a run small enough for one process's memory, and fast enough for a learner.
MAX_FILE_BYTES = 1_000_000
MAX_OPS = 1_000
MAX_SEQUENCES = 256


@dataclass(frozen=True)
class Scenario:
    """A seed, a cache, and the operations on it, in order."""

    seed: int = 0
    cache: CacheConfig = USUAL
    ops: tuple[Op, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "pagedviz": VERSION,
            "seed": self.seed,
            "cache": self.cache.to_json(),
            "ops": [op.to_json() for op in self.ops],
        }

    def to_text(self) -> str:
        """Canonical JSON, one operation a line: equal scenarios give equal text."""
        head = json.dumps({k: v for k, v in self.to_json().items() if k != "ops"}, ensure_ascii=False)
        ops = ",\n  ".join(json.dumps(op.to_json(), ensure_ascii=False) for op in self.ops)
        return f'{head[:-1]},\n "ops": [\n  {ops}\n ]}}\n' if ops else f'{head[:-1]}, "ops": []}}\n'

    def with_ops(self, *ops: Op) -> "Scenario":
        """This scenario with more operations at its end. Raises ScenarioError if a file could not hold one of them, or
        if a limit is passed."""
        read = tuple(operations.read(op.to_json(), "the operation") for op in ops)
        return _checked(dataclasses.replace(self, ops=self.ops + read))


def parse(source: str | bytes) -> Scenario:
    """Read a scenario from JSON text; raise ScenarioError with one clear sentence when it is wrong."""
    if len(source) > MAX_FILE_BYTES:
        raise ScenarioError(f"the file has {len(source):,} bytes; a scenario has at most {MAX_FILE_BYTES:,}")
    try:
        data = json.loads(source)
    except UnicodeDecodeError:
        raise ScenarioError("the file is not text in UTF-8, so it is no scenario") from None
    except json.JSONDecodeError as error:
        raise ScenarioError(
            f'the file is not JSON, line {error.lineno}; a scenario begins with {{"pagedviz": 1'
        ) from None
    except RecursionError:
        raise ScenarioError("the file is nested too deeply to be a scenario") from None
    except ValueError:  # Python refuses a longer integer
        raise ScenarioError("the file holds a number of more than 4,300 digits, so it is no scenario") from None
    return from_json(data)


def from_json(data: Any) -> Scenario:
    """Read a scenario from parsed JSON; raise ScenarioError with one clear sentence when it is wrong."""
    if not isinstance(data, dict):
        raise ScenarioError(f'a scenario is an object like {{"pagedviz": 1, "ops": [...]}}, not {show(data)}')
    if "pagedviz" not in data:
        raise ScenarioError('"pagedviz" is missing; a scenario says "pagedviz": 1')
    if data["pagedviz"] != VERSION or isinstance(data["pagedviz"], bool):
        raise ScenarioError(f'"pagedviz" is {show(data["pagedviz"])}; this program reads version {VERSION}')
    if "fork" in data and isinstance(data.get("cache", {}), dict):  # it may also stand beside "cache"
        data = {**data, "cache": {**data.get("cache", {}), "fork": data["fork"]}}
        del data["fork"]
    json_values.only_known(data, {"pagedviz", "seed", "cache", "ops"}, "the scenario")
    ops = data.get("ops", [])
    if not isinstance(ops, list):
        raise ScenarioError(f'"ops" is {show(ops)}; it must be a list of operations')
    if len(ops) > MAX_OPS:
        raise ScenarioError(f'"ops" has {len(ops):,} operations; a run has at most {MAX_OPS:,}')
    scenario = Scenario(
        seed=json_values.whole(data, "seed", "seed", 0, 0, 2**63 - 1),
        cache=cache_from_json(data.get("cache", {})),
        ops=tuple(operations.read(op, f"ops[{i}]") for i, op in enumerate(ops)),
    )
    return _checked(scenario)


def _checked(scenario: Scenario) -> Scenario:
    """Check the limits of the whole run."""
    if len(scenario.ops) > MAX_OPS:
        raise ScenarioError(f"the run has {len(scenario.ops):,} operations; it may have at most {MAX_OPS:,}")
    written = sum(op.most_tokens for op in scenario.ops)
    if written > MAX_TOKENS:
        raise ScenarioError(f"the run writes {written:,} tokens; it may write at most {MAX_TOKENS:,}")
    steps = sum(op.num_steps for op in scenario.ops if isinstance(op, EngineSteps))
    if steps > MAX_STEPS:
        raise ScenarioError(f"the run takes {steps:,} engine steps; it may take at most {MAX_STEPS:,}")
    made = sum(op.num_sequences for op in scenario.ops)
    if made > MAX_SEQUENCES:
        raise ScenarioError(f"the run makes {made:,} sequences; it may make at most {MAX_SEQUENCES:,}")
    return scenario
