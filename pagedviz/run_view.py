"""A run as the screen sees it: what the engine planned at once, and what the compute process has answered so far."""

import itertools
from dataclasses import replace
from typing import Any

from pagedviz import formulas
from pagedviz.engine.log.replay.history import History
from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.model.sampling import TooClose
from pagedviz.run import source
from pagedviz.run.memory import Memory, memory
from pagedviz.run.play import planner
from pagedviz.run.trace import Check, Step
from pagedviz.runtime.client import ComputedRun
from pagedviz.scenario.scenario import Scenario

CLOSE = 1e-4  # of scores: rounding moves them less


class RunView:
    """Steps, states and verdicts of one run.

    The engine runs ahead here, with the words of the dense model, as far as rounding cannot change one; from there on
    steps arrive with their verdicts. A planned step that the compute process sees otherwise is a failed check.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.steps: list[Step] = []
        self.memory: list[Memory] = []  # by state
        self.stage_steps: list[dict[str, Any]] = []
        self.excerpts: list[dict[str, Any]] = []
        player = planner(scenario.cache, scenario.seed, CLOSE)
        self.base = player.base
        self._history = History(player.base)
        self.memory.append(memory(player.base))
        try:
            for happening in itertools.chain.from_iterable(map(player.perform, scenario.ops)):
                self._append(Step.of(happening), happening.snapshot)
        except TooClose:
            pass  # the model's next word is known when the kernels have computed it
        self.num_planned = len(self.steps)

    def follow(self, run: ComputedRun) -> None:
        """Take over the steps that only the compute process can know."""
        for step in run.steps[len(self.steps) :]:
            self._append(step)

    def snapshot(self, index: int) -> Snapshot:
        """The state after `index` steps."""
        return self._history.at(index)

    def checks(self, run: ComputedRun) -> list[Check | None]:
        """The verdict of every state, None where it has not been computed yet."""
        checks: list[Check | None] = list(run.checks[: len(self.steps) + 1])
        for k, (planned, computed) in enumerate(zip(self.steps[: self.num_planned], run.steps, strict=False), 1):
            check = checks[k] if k < len(checks) else None
            if not planned.agrees(computed) and check is not None:
                sentence = f"replay: the app planned {planned.event}, the compute process did {computed.event}"
                checks[k] = replace(check, broken=(*check.broken, sentence))
        return checks + [None] * (len(self.steps) + 1 - len(checks))

    def stage_data(self, name: str, run: ComputedRun, backend: str) -> dict[str, Any]:
        """The run as the stage takes it."""
        return {
            "run": name,
            "base": self.base.to_json(),
            "steps": self.stage_steps,
            "excerpts": self.excerpts,
            "checks": [check and check.to_json() for check in self.checks(run)],
            "cache": {
                "num_layers": self.scenario.cache.num_layers,
                "num_heads": self.scenario.cache.num_heads,
                "num_kv_heads": self.scenario.cache.num_kv_heads,
                "head_dim": self.scenario.cache.head_dim,
                "max_num_seqs": self.scenario.cache.scheduler.max_num_seqs,
            },
            "backend": backend,
            "status": run.failed or run.notice,
        }

    def _append(self, step: Step, after: Snapshot | None = None) -> None:
        before = self._history.last
        self._history.append(step.event, after)
        after = self._history.last
        excerpt = source.excerpt(step.source)
        if excerpt not in self.excerpts:
            self.excerpts.append(excerpt)
        self.stage_steps.append(
            {
                "event": step.event.to_json(),
                "sentence": step.sentence,
                "refused": step.refused,
                "op": step.op_index,
                "op_text": step.op,
                "formula": formulas.lines(self.scenario.cache, before, step.event, after, step.refused),
                "source": {"excerpt": self.excerpts.index(excerpt), "line": step.source.line},
            }
        )
        self.steps.append(step)
        self.memory.append(memory(after))
