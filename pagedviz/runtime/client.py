"""The app's side of the compute process: starts it, sends it runs, keeps its answers, and starts it anew if it dies.

Imports no torch. One `ComputeClient` serves all sessions of a server. Sessions with the same scenario share one run.
"""

import atexit
import json
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pagedviz.probe import Answer, Probe
from pagedviz.run.source import PROJECT
from pagedviz.run.trace import Check, Step
from pagedviz.scenario.scenario import Scenario

WORKER = (sys.executable, "-m", "pagedviz.runtime.worker")
MAX_CRASHES = 3  # a run under which the process stopped this often is given up; so is a process that does not start
MAX_CRASHES_IN_ALL = 8  # this often at any steps, and a run is given up too
SHORT_LIFE = 10.0  # seconds; a process that ends sooner, before it has computed anything, counts as not started
KEPT_ANSWER_BYTES = 4 * 2**20  # of one run's answers to probes, as JSON; the newest is always kept
KEPT_RUNS = 32  # finished runs without a session that are kept for a later one

Asked = tuple[int, Probe]  # the state's index, and the probe


@dataclass
class ComputedRun:
    """What has been computed of one scenario. `checks[k]` is the verdict of the state after k steps; the lists only
    grow.

    `notice` is a sentence if the compute process stopped under this run; `failed` is one if the run was given up.
    """

    key: str
    scenario: Scenario
    steps: list[Step] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    finished_ops: int = 0
    notice: str = ""
    failed: str = ""
    crashes: list[int] = field(default_factory=list)  # after how many computed states the process stopped, each time
    life: int = -1  # the start of the process, counted, that holds its tensors; -1: none
    computed: int = 0  # states that were computed since that start
    holders: int = 0
    answers: dict[Asked, Answer] = field(default_factory=dict)
    answer_bytes: dict[Asked, int] = field(default_factory=dict)
    asked: set[Asked] = field(default_factory=set)  # and not answered yet

    @property
    def waiting(self) -> bool:
        """Steps, verdicts or answers are still to come."""
        return not self.done or (bool(self.asked) and not self.failed)

    @property
    def done(self) -> bool:
        return bool(self.failed) or (self.finished_ops == len(self.scenario.ops) and bool(self.checks))


class Held:
    """A session's hold on a run. A run without any hold may be dropped."""

    def __init__(self, client: "ComputeClient", run: ComputedRun) -> None:
        self.run = run
        run.holders += 1
        # A finalizer may run at any line of any thread, so it only appends to a list. The client's next call reads it.
        self._let_go = weakref.finalize(self, client._let_go.append, run)

    def let_go(self) -> None:
        self._let_go()


class ComputeClient:
    """Runs scenarios in the compute process. Every method returns at once; results arrive in the runs."""

    def __init__(self, command: Sequence[str] = WORKER) -> None:
        self.backend = ""  # the name of the backend; empty until the process has started
        self.unavailable = ""  # a sentence if the process does not start
        self._command = command
        self._lock = threading.RLock()
        self._runs: OrderedDict[str, ComputedRun] = OrderedDict()
        self._let_go: deque[ComputedRun] = deque()
        self._names = 0
        self._life = 0
        self._failed_starts = 0
        self._closed = False
        self._start()
        atexit.register(self.close)

    @property
    def pid(self) -> int:
        return self._process.pid

    def hold(self, scenario: Scenario, previous: Held | None = None) -> Held:
        """Compute a scenario, or share the run that does.

        `previous` is what the session held before. If the new scenario only continues that run and no other session
        holds it, the run is extended. Otherwise a new run shows their common beginning at once and computes it again.
        """
        with self._lock:
            self._drop_unheld()
            if self.unavailable and time.monotonic() - self._started_at > SHORT_LIFE:  # try once more
                self.unavailable, self._failed_starts = "", 0
                self._start()
            for run in self._runs.values():
                if run.scenario == scenario and not run.failed:
                    self._runs.move_to_end(run.key)
                    return Held(self, run)
            if previous is not None and self._continues(previous.run, scenario):
                run = previous.run
                more, run.scenario = scenario.ops[len(run.scenario.ops) :], scenario
                self._send({"extend": run.key, "ops": [op.to_json() for op in more]})
                return Held(self, run)
            self._names += 1
            run = ComputedRun(f"run-{self._names}", scenario, failed=self.unavailable)
            if previous is not None:
                _share_beginning(run, previous.run)
            self._runs[run.key] = run
            held = Held(self, run)
            self._open(run)
            return held

    def ask(self, held: Held, index: int, probe: Probe) -> Answer | None:
        """The answer to a probe at the state after `index` steps, or None until it has come: ask again then."""
        run, asked = held.run, (index, probe)
        with self._lock:
            if asked in run.answers:
                return run.answers[asked]
            if run.failed or self.unavailable:
                return {"refused": f"{run.failed or self.unavailable} Until it goes on, no question is answered."}
            if asked not in run.asked:
                run.asked.add(asked)
                if run.life == self._life:
                    self._send_probe(run, asked)
                else:
                    self._open(run)  # no session held it for a while, so its tensors are gone
            return None

    def stop(self, held: Held) -> Held:
        """Stop computing for this session, which keeps what has been computed. Other sessions of the run go on."""
        with self._lock:
            if held.run.done:
                return held
            self._names += 1
            stopped = replace(
                held.run,
                key=f"run-{self._names}",
                steps=list(held.run.steps),
                checks=list(held.run.checks),
                failed="Checking was stopped. What has been checked stays.",
                holders=0,
                answers=dict(held.run.answers),
                answer_bytes=dict(held.run.answer_bytes),
                asked=set(),
            )
            held.let_go()
            self._drop_unheld()
            return Held(self, stopped)

    def close(self) -> None:
        """End the compute process."""
        with self._lock:
            self._closed = True
            self._process.kill()

    # --- the process ---

    def _start(self) -> None:
        self._life += 1
        self._computing = ""
        self._probing: Asked | None = None  # the probe that it is answering; None: it computes a step
        self._error = ""
        self._has_started = False
        self._started_at = time.monotonic()
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PROJECT, text=True, encoding="utf-8"
        )
        self._outbox: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()
        threading.Thread(target=_write, args=(self._process, self._outbox), daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.endswith("\n"):  # a process that is killed may leave half a line
                    with self._lock:
                        self._drop_unheld()
                        self._take(json.loads(line))
        except Exception:  # an unreadable answer goes to the log, and the process is started anew
            traceback.print_exc()
            process.kill()
        process.wait()
        with self._lock:
            self._outbox.put("")  # wakes its writer, which finds the pipe broken and ends
            if not self._closed:
                self._restart(process.returncode)

    def _take(self, answer: dict[str, Any]) -> None:
        if "backend" in answer:
            self.backend, self._has_started = answer["backend"], True
        elif "computing" in answer:
            self._computing = answer["computing"]
            self._probing = (answer["index"], Probe.from_json(answer["probe"])) if "probe" in answer else None
        elif "error" in answer:
            self._error = answer["error"]
        elif (run := self._runs.get(answer["run"])) is None or run.life != self._life:
            return  # dropped meanwhile
        elif "finished_ops" in answer:
            run.finished_ops = answer["finished_ops"]
            self._computing = ""
        elif "answer" in answer:
            self._take_answer(run, (answer["index"], Probe.from_json(answer["probe"])), answer["answer"])
            self._computing = ""
        else:
            index = answer["index"]
            if index:  # the step first: as soon as its check is here, the step is compared with the plan
                run.steps[index - 1 : index] = [Step.from_json(answer["step"])]
            run.checks[index : index + 1] = [Check.from_json(answer["check"])]
            run.computed = index + 1

    def _take_answer(self, run: ComputedRun, asked: Asked, answer: Answer) -> None:
        run.asked.discard(asked)
        run.answers[asked], run.answer_bytes[asked] = answer, len(json.dumps(answer))
        while sum(run.answer_bytes.values()) > KEPT_ANSWER_BYTES and len(run.answers) > 1:
            oldest = next(iter(run.answers))
            del run.answers[oldest], run.answer_bytes[oldest]

    def _restart(self, returncode: int) -> None:
        cause = self._error or (
            f"ended by {signal.Signals(-returncode).name}" if returncode < 0 else f"exit code {returncode}"
        )
        lasted = time.monotonic() - self._started_at > SHORT_LIFE
        started = self._has_started and (self._computing or lasted)
        self._failed_starts = 0 if started else self._failed_starts + 1
        print(f"pagedviz: the compute process stopped ({cause})", file=sys.stderr, flush=True)
        if self._failed_starts >= (MAX_CRASHES_IN_ALL if self._has_started else MAX_CRASHES):
            self.unavailable = (
                f"The compute process does not start ({cause}); the server's log says why. Nothing is checked."
            )
            self.backend = ""
            for run in self._runs.values():
                run.asked.clear()
                if not run.done:
                    run.failed, run.notice = self.unavailable, ""
            return
        culprit = self._runs.get(self._computing)
        if culprit is not None and self._probing is not None:  # the question is given up, and the run goes on
            sentence = f"The compute process stopped at this question ({cause}), so it is not asked again."
            self._take_answer(culprit, self._probing, {"refused": sentence})
        elif culprit is not None:
            culprit.crashes.append(culprit.computed)
            same = culprit.crashes.count(culprit.computed)
            if same >= MAX_CRASHES or len(culprit.crashes) >= MAX_CRASHES_IN_ALL:
                times = (
                    f"{same} times at the same step of"
                    if same >= MAX_CRASHES
                    else f"{len(culprit.crashes)} times under"
                )
                culprit.failed = (
                    f"The compute process stopped {times} this run ({cause}), so it is not tried again. "
                    "What has been checked stays."
                )
        self._start()
        for run in self._runs.values():
            if run.waiting and run.holders:
                run.notice = (
                    f"The compute process stopped ({cause}). It was started again, and this run is computed anew."
                )
                self._open(run)

    def _open(self, run: ComputedRun) -> None:
        run.life, run.computed = self._life, 0
        self._send({"open": run.key, "seed": run.scenario.seed, "cache": run.scenario.to_json()["cache"]})
        self._send({"extend": run.key, "ops": [op.to_json() for op in run.scenario.ops]})
        for asked in run.asked:
            self._send_probe(run, asked)

    def _send_probe(self, run: ComputedRun, asked: Asked) -> None:
        index, probe = asked
        self._send({"ask": run.key, "index": index, "probe": probe.to_json()})

    def _send(self, command: dict[str, Any]) -> None:
        self._outbox.put(json.dumps(command) + "\n")

    # --- holding ---

    def _continues(self, run: ComputedRun, scenario: Scenario) -> bool:
        same = (run.scenario.seed, run.scenario.cache) == (scenario.seed, scenario.cache)
        begins = scenario.ops[: len(run.scenario.ops)] == run.scenario.ops
        alive = run.life == self._life and self._process.poll() is None and run.key in self._runs
        return same and begins and alive and not run.failed and run.holders <= 1

    def _drop_unheld(self) -> None:
        """Forget unfinished runs without a hold. Of the finished ones keep the latest, without their tensors."""
        while self._let_go:
            self._let_go.popleft().holders -= 1
        unheld = [run for run in self._runs.values() if not run.holders]
        for run in unheld:
            if run.life == self._life:
                self._send({"close": run.key})
                run.life = -1
                run.asked.clear()
        for run in unheld[: max(0, len(unheld) - KEPT_RUNS)] + [run for run in unheld if not run.done]:
            self._runs.pop(run.key, None)


def _write(process: subprocess.Popen[str], outbox: "queue.SimpleQueue[str]") -> None:
    """Send commands from a thread of its own: a starting process does not read yet, and a session must not wait."""
    assert process.stdin is not None
    try:
        while True:
            process.stdin.write(outbox.get())
            process.stdin.flush()
    except (BrokenPipeError, ValueError):
        pass  # the process has died: the reader starts it again and opens every run anew


def _share_beginning(run: ComputedRun, other: ComputedRun) -> None:
    """Copy what another run has computed of the common beginning, to show it at once. It is computed again too."""
    if (run.scenario.seed, run.scenario.cache) != (other.scenario.seed, other.scenario.cache):
        return
    common = 0
    for mine, theirs in zip(run.scenario.ops, other.scenario.ops, strict=False):
        if mine != theirs:
            break
        common += 1
    shared = [step for step in other.steps if step.op_index < common]
    run.steps = shared
    run.checks = other.checks[: len(shared) + 1]
