"""What the engine would do with a scenario, planned at once and without kernels."""

from dataclasses import dataclass
from functools import lru_cache

from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.run.play import planner
from pagedviz.scenario.scenario import Scenario


@dataclass(frozen=True)
class DryRun:
    """The state after all operations, with the tokens that the dense model generates.

    `refusal` is the sentence that says why the last operation is refused, "" if it is not. `num_steps` counts the steps
    of the whole run, generated tokens included.
    """

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
