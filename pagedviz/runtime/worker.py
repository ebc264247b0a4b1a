"""The compute process: the only one that uses the GPU or the interpreter. It serves all sessions in turn, step by step.

It is a program, `python -m pagedviz.runtime.worker`, that reads commands from standard input and writes answers to
standard output, one JSON object a line:

    {"open": run, "seed": 0, "cache": {...}}      ->  {"run": run, "index": 0, "check": {...}}         the start state
    {"extend": run, "ops": [...]}                 ->  {"run": run, "index": k, "step": {...}, "check": {...}}  each step
                                                  ->  {"run": run, "finished_ops": n}      all n are computed
    {"ask": run, "index": k, "probe": {...}}      ->  {"run": run, "index": k, "probe": {...}, "answer": {...}}
                                                      once state k is computed; then the next step in turn is computed
    {"close": run}
    at its start                                  ->  {"backend": "Triton interpreter, CPU"}
    before each step                              ->  {"computing": run}
    before an answer                              ->  {"computing": run, "index": k, "probe": {...}}
    when a step cannot be computed                ->  {"run": run, "error": "..."}, and the process ends
"""

import contextlib
import json
import os
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Any

import torch

import kernels
from pagedviz.probe import Probe
from pagedviz.run.trace import Step
from pagedviz.runtime import probes
from pagedviz.runtime.running.runner import Runner
from pagedviz.scenario import scenario
from pagedviz.scenario.operations import Op
from pagedviz.scenario.settings import CacheConfig, cache_from_json

Reply = Callable[[dict[str, Any]], None]


class Run:
    """One session's run: its runner, and the operations that have not been computed yet."""

    def __init__(self, seed: int, cache: CacheConfig) -> None:
        self.runner = Runner(cache, seed)
        self.ops: deque[Op] = deque()
        self.finished_ops = 0
        self.asked: list[tuple[int, Probe]] = []
        self.index = -1  # of the newest computed state
        self.ended = False  # it is the last one, unless more operations come
        self._steps = self._compute()

    def extend(self, ops: tuple[Op, ...]) -> None:
        self.ops += ops
        self.ended = False

    def close(self) -> None:
        """Free the tensors now. The waiting generator refers to its run, so nothing else would free them soon.

        In Python 3.12 a closed generator still refers to its variables, so it is deleted too.
        """
        self._steps.close()
        del self.runner, self._steps

    def advance(self) -> dict[str, Any] | None:
        """Compute one more step; None when there is none to compute now."""
        answer = next(self._steps)
        self.ended = answer is None
        if answer is not None:
            self.index = answer["index"]
        return answer

    def ready(self) -> list[tuple[int, Probe]]:
        """Remove and return the probes whose states have been computed, or all probes at the end of the run."""
        ready = [(index, probe) for index, probe in self.asked if self.ended or index <= self.index]
        self.asked = [waiting for waiting in self.asked if waiting not in ready]
        return ready

    def answer(self, probe: Probe, index: int) -> dict[str, Any]:
        """Answer a probe at a state. A state after the end of the run is refused: it would never be computed."""
        if index > self.index:
            return {"refused": f"There is no step {index}: the run ends after {self.index}."}
        return probes.answer(probe, self.runner.recording.at(index))

    def _compute(self) -> Generator[dict[str, Any] | None, None, None]:
        yield {"index": 0, "check": self.runner.check_start().to_json()}
        index = 0
        while True:
            while not self.ops:
                yield None
            for happening, check in self.runner.perform(self.ops.popleft()):
                index += 1
                yield {"index": index, "step": Step.of(happening).to_json(), "check": check.to_json()}
            self.finished_ops += 1


class Worker:
    """All runs, taken in turn: a step of one, then a step of the next."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.runs: dict[str, Run] = {}
        self.turn: deque[str] = deque()

    def handle(self, command: dict[str, Any]) -> None:
        if "open" in command:
            name = command["open"]
            self.reply({"computing": name})
            with self._reported(name):
                self.runs[name] = Run(command["seed"], cache_from_json(command["cache"]))
            self._wake(name)
        elif "extend" in command and command["extend"] in self.runs:
            name = command["extend"]
            self.runs[name].extend(scenario.from_json({"pagedviz": 1, "ops": command["ops"]}).ops)
            self._wake(name)
        elif "ask" in command and command["ask"] in self.runs:
            name = command["ask"]
            self.runs[name].asked.append((command["index"], Probe.from_json(command["probe"])))
            self._answer(name)
            # So that a session that keeps asking does not hold up the steps of the others.
            if self.turn:
                self.step()
        elif "close" in command:
            run = self.runs.pop(command["close"], None)
            if run is not None:
                run.close()

    def step(self) -> None:
        """Compute one step of the run whose turn it is."""
        run = self.turn.popleft()
        if run not in self.runs:
            return
        self.reply({"computing": run})
        with self._reported(run):
            answer = self.runs[run].advance()
        if answer is None:
            self.reply({"run": run, "finished_ops": self.runs[run].finished_ops})
        else:
            self.reply({"run": run, **answer})
            self.turn.append(run)
        self._answer(run)

    def _answer(self, run: str) -> None:
        """Answer the probes of a run that can be answered now."""
        for index, probe in self.runs[run].ready():
            about = {"index": index, "probe": probe.to_json()}
            self.reply({"computing": run, **about})
            with self._reported(run):
                answer = self.runs[run].answer(probe, index)
            self.reply({"run": run, **about, "answer": answer})

    def _wake(self, run: str) -> None:
        if run not in self.turn:
            self.turn.append(run)

    @contextlib.contextmanager
    def _reported(self, run: str) -> Iterator[None]:
        """Report which run failed and how, and raise: a GPU context is unusable after a failed launch, so the process
        must end."""
        try:
            yield
        except Exception as error:
            self.reply(
                {"run": run, "error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
            )
            raise


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints must not mix with the answers

    def reply(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    commands: queue.Queue[dict[str, Any] | None] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            commands.put(json.loads(line))
        commands.put(None)  # the process that started this one has ended

    if kernels.device().type == "cpu":
        torch.set_num_threads(1)  # the interpreter uses one thread anyway; the other cores serve the page
        with contextlib.suppress(OSError, AttributeError):
            os.nice(5)
    reply({"backend": kernels.backend_name()})
    threading.Thread(target=read, daemon=True).start()
    worker = Worker(reply)
    while True:
        while worker.turn and commands.empty():
            worker.step()
        command = commands.get()
        if command is None:
            return
        worker.handle(command)


if __name__ == "__main__":
    main()
