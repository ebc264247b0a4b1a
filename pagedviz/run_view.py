"""A run as the screen sees it: what the engine planned at once, and what the compute process has answered so far."""

import itertools
from dataclasses import replace
from typing import Any

from pagedviz import formula, source
from pagedviz.engine import replay
from pagedviz.engine.events import Token
from pagedviz.engine.snapshot import Snapshot
from pagedviz.metrics import Memory, memory
from pagedviz.play import Player
from pagedviz.runtime.client import ComputedRun
from pagedviz.scenario import Scenario
from pagedviz.trace import Check, Step

KEY_FRAME = 64  # every so many states one snapshot is kept; the others are replayed from it


class _Unknown(Exception):
    """The next token is the model's to choose."""


class RunView:
    """Steps, states and verdicts of one run.

    The engine runs ahead here as far as the scenario fixes the tokens; from the first generated token on, steps
    arrive with their verdicts. A planned step that the compute process sees otherwise is a failed check.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.steps: list[Step] = []
        self.memory: list[Memory] = []  # by state
        self.stage_steps: list[dict[str, Any]] = []
        self.excerpts: list[dict[str, Any]] = []
        player = Player(scenario.cache, scenario.seed, self._unknown)
        self.base = self._last = player.base
        self._key_frames = [player.base]
        self.memory.append(memory(player.base))
        try:
            for happening in itertools.chain.from_iterable(map(player.perform, scenario.ops)):
                self._append(Step.of(happening), happening.snapshot)
        except _Unknown:
            pass
        self.num_planned = len(self.steps)

    @staticmethod
    def _unknown(seq_id: str) -> Token:
        raise _Unknown

    def follow(self, run: ComputedRun) -> None:
        """Take over the steps that only the compute process can know."""
        for step in run.steps[len(self.steps) :]:
            self._append(step, replay.apply(self._last, step.event))

    def snapshot(self, index: int) -> Snapshot:
        """The state after `index` steps."""
        state = self._key_frames[index // KEY_FRAME]
        for step in self.steps[index // KEY_FRAME * KEY_FRAME : index]:
            state = replay.apply(state, step.event)
        return state

    def checks(self, run: ComputedRun) -> list[Check | None]:
        """The verdict of every state, None where it has not been computed yet."""
        checks: list[Check | None] = list(run.checks[: len(self.steps) + 1])
        for k, (planned, computed) in enumerate(zip(self.steps[: self.num_planned], run.steps, strict=False), 1):
            check = checks[k] if k < len(checks) else None
            if planned != computed and check is not None:
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
            "backend": backend,
            "status": run.failed or run.notice,
        }

    def _append(self, step: Step, after: Snapshot) -> None:
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
                "formula": formula.lines(self.scenario.cache, self._last, step.event, after, step.refused),
                "source": {"excerpt": self.excerpts.index(excerpt), "line": step.source.line},
            }
        )
        self.steps.append(step)
        self.memory.append(memory(after))
        self._last = after
        if len(self.steps) % KEY_FRAME == 0:
            self._key_frames.append(after)
