"""The compute process and its client: the real process, killed for real."""

import gc
import json
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from pagedviz.run.play import PROJECT
from pagedviz.run.trace import Check, Step
from pagedviz.runtime.client import MAX_CRASHES, MAX_CRASHES_IN_ALL, WORKER, ComputeClient
from pagedviz.runtime.worker import Run
from pagedviz.scenario.operations import Add, Append, Fork, Free, Generate, Op, Reload, Spill
from pagedviz.scenario.scenario import Scenario
from pagedviz.scenario.settings import CacheConfig
from tests.runtime.runner.runner_cases import TINY, Played, one_by_one

pytestmark = pytest.mark.slow

LONG = one_by_one("A", ["w"] * 14)  # many steps
OPS = (Add("A", ("a", "b", 7)), Fork("A", "B"), Append("B", ("x",)), Generate("A", 2), Spill("A"), Reload("A"))


def scenario(*ops: Op, seed: int = 0) -> Scenario:
    return Scenario(seed, replace(TINY, num_layers=1), ops)


def wait(until: Callable[[], object], what: str) -> None:
    ends = time.monotonic() + 120
    while not until():
        assert time.monotonic() < ends, f"waited in vain for {what}"
        time.sleep(0.01)


def wait_done(*helds) -> None:
    for held in helds:
        wait(lambda run=held.run: run.done, f"the end of {held.run.key}, now {len(held.run.checks)} states: {held.run}")


def timeless(checks) -> list[Check]:
    return [replace(check, milliseconds=0) for check in checks]


@cache
def played_here(scenario: Scenario) -> Played:
    return Played(*scenario.ops, seed=scenario.seed, cache=scenario.cache)


def assert_computed(run) -> None:
    """The run holds what a runner in this process computes, number for number."""
    here = played_here(run.scenario)
    assert run.failed == ""
    assert run.steps == [Step.of(happening) for happening, _ in here.steps]
    assert timeless(run.checks) == timeless([here.start, *here.checks])
    assert all(check.ok for check in run.checks)


@pytest.fixture(scope="module")
def client():
    client = ComputeClient()
    yield client
    client.close()


@pytest.fixture
def own_client():
    """Clients of a test alone, with any command as their worker."""
    clients = []

    def start(command=WORKER) -> ComputeClient:
        clients.append(ComputeClient(command))
        return clients[-1]

    yield start
    for client in clients:
        client.close()


def broken_worker(code: str) -> tuple[str, ...]:
    """The real worker, with something broken in its process first."""
    return sys.executable, "-c", f"{code}\nfrom pagedviz.runtime import worker\nworker.main()"


# --- results ---


def test_results_arrive_in_order_and_equal_those_of_a_runner(client):
    held = client.hold(scenario(*OPS))
    lengths = []
    wait(lambda: lengths.append(len(held.run.checks)) or held.run.done, "the run")
    assert lengths == sorted(lengths)
    assert_computed(held.run)
    assert client.backend == held.run.checks[0].backend


def test_refused_operation_does_not_end_the_run(client):
    held = client.hold(scenario(Free("X"), Add("A", ("a",))))
    wait_done(held)
    assert held.run.steps[0].refused["error"] == "UnknownSequence"
    assert_computed(held.run)


def test_run_of_no_operations_is_its_start_alone(client):
    held = client.hold(scenario(seed=8))
    wait_done(held)
    assert (held.run.steps, len(held.run.checks)) == ([], 1)


def test_runs_are_served_in_turn_step_by_step_until_the_app_is_gone():
    """Spoken to by hand, so that the order of the answers is seen."""
    process = subprocess.Popen(WORKER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PROJECT, text=True)
    settings = scenario().to_json()["cache"]
    commands = [{"open": run, "seed": 0, "cache": settings} for run in ("x", "y", "z")]
    for run, count in (("x", 3), ("y", 6), ("z", 3)):
        commands.append({"extend": run, "ops": [op.to_json() for op in one_by_one("A", [1] * count)]})
    process.stdin.write("".join(json.dumps(command) + "\n" for command in commands))
    process.stdin.flush()
    indices = {"x": [], "y": [], "z": []}
    order = []
    for line in process.stdout:
        answer = json.loads(line)
        if "index" in answer:
            indices[answer["run"]].append(answer["index"])
            order.append(answer["run"])
        if answer.get("finished_ops") == 6 and answer["run"] == "y":
            break
    process.stdin.close()
    assert process.wait(timeout=60) == 0
    assert indices == {"x": [*range(7)], "y": [*range(11)], "z": [*range(7)]}
    together = order[order.index("z") :]
    assert together[:15] == (["z", "x", "y"] * 5 if together[1] == "x" else ["z", "y", "x"] * 5)
    assert order[-4:] == ["y"] * 4


def test_closed_run_is_computed_no_further():
    process = subprocess.Popen(WORKER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PROJECT, text=True)

    def say(**command) -> None:
        process.stdin.write(json.dumps(command) + "\n")
        process.stdin.flush()

    for run in ("x", "y"):
        say(open=run, seed=0, cache=scenario().to_json()["cache"])
        say(extend=run, ops=[op.to_json() for op in one_by_one("A", [1] * 8)])
    answers = []
    for line in process.stdout:
        answers.append(json.loads(line))
        if answers[-1].get("run") == "y" and answers[-1].get("index") == 1:
            say(close="y")
        if answers[-1].get("run") == "x" and "finished_ops" in answers[-1]:
            break
    process.stdin.close()
    assert process.wait(timeout=60) == 0
    assert max(answer["index"] for answer in answers if answer.get("run") == "y" and "index" in answer) < 8
    assert max(answer["index"] for answer in answers if answer.get("run") == "x" and "index" in answer) == 13


def test_closed_run_frees_its_tensors_at_once():
    gc.disable()
    try:
        run = Run(0, TINY)
        run.extend((Add("A", tuple("abc")),))
        assert run.advance()
        assert run.advance()
        kept = weakref.ref(run.runner.kv.k)
        run.close()
        assert kept() is None
    finally:
        gc.enable()


# --- holding, continuing, undoing ---


def test_same_scenario_is_computed_once_for_all(client):
    one, other = client.hold(scenario(*OPS, seed=1)), client.hold(scenario(*OPS, seed=1))
    assert one.run is other.run
    another = client.hold(scenario(*OPS, seed=2))
    assert another.run is not one.run
    wait_done(one, another)
    assert_computed(another.run)


def test_finished_run_is_there_for_the_next_session(client):
    held = client.hold(scenario(Add("A", ("kept",))))
    wait_done(held)
    checks = held.run.checks
    held.let_go()
    again = client.hold(scenario(Add("A", ("kept",))))
    assert again.run.done
    assert again.run.checks is checks


def test_continued_scenario_extends_its_run(client):
    held = client.hold(scenario(*OPS, seed=3))
    wait_done(held)
    steps = list(held.run.steps)
    more = client.hold(scenario(*OPS, Append("A", ("z",)), seed=3), held)
    assert more.run is held.run
    assert not more.run.done
    assert more.run.steps[: len(steps)] == steps
    wait_done(more)
    assert_computed(more.run)


def test_scenario_may_be_continued_before_it_is_computed(client):
    held = client.hold(scenario(*OPS[:1], seed=4))
    for count in range(2, len(OPS) + 1):
        more = client.hold(scenario(*OPS[:count], seed=4), held)
        held.let_go()
        held = more
    wait_done(held)
    assert_computed(held.run)


def test_undone_scenario_shows_the_shared_beginning_at_once(client):
    held = client.hold(scenario(*OPS, seed=5))
    wait_done(held)
    with client._lock:  # nothing arrives meanwhile
        undone = client.hold(scenario(*OPS[:3], seed=5), held)
        assert undone.run is not held.run
        assert undone.run.steps == [step for step in held.run.steps if step.op_index < 3]
        assert undone.run.checks == held.run.checks[: len(undone.run.steps) + 1]
    wait(lambda: undone.run.finished_ops == 3, "the undone run")
    assert_computed(undone.run)


def test_run_with_another_beginning_shares_only_what_is_common(client):
    held = client.hold(scenario(*OPS, seed=6))
    wait_done(held)
    with client._lock:
        other = client.hold(scenario(*OPS[:2], Append("B", ("other",)), seed=6), held)
        assert {step.op_index for step in other.run.steps} == {0, 1}
        unlike = client.hold(scenario(*OPS[:2], seed=7), held)
        assert (unlike.run.steps, unlike.run.checks) == ([], [])
    wait(lambda: other.run.finished_ops == 3, "the other run")
    assert_computed(other.run)


def test_run_that_another_session_watches_is_not_continued_under_its_eyes(client):
    one, other = client.hold(scenario(*OPS[:2])), client.hold(scenario(*OPS[:2]))
    more = client.hold(scenario(*OPS[:3]), one)
    assert more.run is not other.run
    assert other.run.scenario == scenario(*OPS[:2])
    wait_done(more, other)
    assert_computed(more.run)
    assert_computed(other.run)


def test_unfinished_run_is_dropped_when_nobody_holds_it(client):
    busy = client.hold(scenario(*LONG, seed=8))
    held = client.hold(scenario(*OPS, seed=9))
    run = held.run
    held.let_go()
    wait_done(busy)
    assert not run.done
    assert run.key not in client._runs
    assert len(run.checks) < len(busy.run.checks)


def test_forgotten_hold_lets_go_by_itself(client):
    held = client.hold(scenario(*LONG, seed=10))
    key = held.run.key
    assert key in client._runs
    del held
    gc.collect()
    wait(lambda: key not in client._runs, "the run to be forgotten")


def test_stop_stops_and_keeps_what_has_been_checked(client):
    held = client.hold(scenario(*LONG, seed=11))
    wait(lambda: len(held.run.checks) > 4, "some states")
    stopped = client.stop(held)
    assert stopped.run.failed == "Checking was stopped. What has been checked stays."
    checked = len(stopped.run.checks)
    after = client.hold(scenario(Add("A", ("after",) * 6), seed=11))
    wait_done(after)
    assert len(stopped.run.checks) == checked > 4
    assert held.run.key not in client._runs
    assert client.hold(scenario(*LONG, seed=11)).run is not held.run


def test_stop_of_one_session_leaves_the_run_of_another_that_shares_it(client):
    mine = client.hold(scenario(*LONG, seed=12))
    theirs = client.hold(scenario(*LONG, seed=12))
    assert mine.run is theirs.run
    client.stop(mine)
    wait_done(theirs)
    assert theirs.run.failed == ""
    assert_computed(theirs.run)


def test_a_finished_run_that_nobody_holds_keeps_its_results_and_not_its_tensors(client):
    held = client.hold(scenario(Add("A", ("w",) * 3), seed=13))
    wait_done(held)
    run = held.run
    held.let_go()
    again = client.hold(scenario(Add("A", ("w",) * 3), seed=13))
    assert again.run is run
    assert run.life == -1
    more = client.hold(scenario(Add("A", ("w",) * 3), Free("A"), seed=13), again)
    wait_done(more)
    assert more.run is not run
    assert_computed(more.run)


# --- dying ---


def test_killed_process_is_started_again_and_the_run_ends_fully_checked(own_client):
    client = own_client()
    held = client.hold(scenario(*OPS))
    wait(lambda: len(held.run.checks) > 5, "some states")
    pid = client.pid
    os.kill(pid, signal.SIGKILL)
    wait_done(held)
    assert client.pid != pid
    assert held.run.notice == (
        "The compute process stopped (ended by SIGKILL). It was started again, and this run is computed anew."
    )
    assert_computed(held.run)
    more = client.hold(scenario(*OPS, Free("B")), held)
    wait_done(more)
    assert_computed(more.run)


def test_run_finished_before_the_process_died_can_be_continued_after(own_client):
    client = own_client()
    held = client.hold(scenario(*OPS[:3]))
    wait_done(held)
    pid = client.pid
    os.kill(pid, signal.SIGKILL)
    wait(lambda: client.pid != pid, "the next process, which knows nothing of the run")
    more = client.hold(scenario(*OPS), held)
    wait_done(more)
    assert_computed(more.run)


@pytest.mark.parametrize(
    ("code", "tries"),
    [
        ("raise SystemExit(3)", MAX_CRASHES),
        ('print(\'{"backend": "none"}\')', MAX_CRASHES_IN_ALL),
        (
            'import sys; sys.stdout.write(\'{"backend": "none"}\\n{"run": "run-1", "ind\'); sys.stdout.flush()',
            MAX_CRASHES_IN_ALL,
        ),
    ],
    ids=["at once", "after its greeting", "in the middle of a line"],
)
def test_process_that_always_dies_is_given_up_with_a_sentence(own_client, code, tries):
    client = own_client((sys.executable, "-c", code))
    held = client.hold(scenario(*OPS))
    wait_done(held)
    assert held.run.failed == client.unavailable
    assert client.unavailable.startswith("The compute process does not start (exit code ")
    lives = client._life
    assert lives == tries
    later = client.hold(scenario(*OPS, seed=1))
    assert later.run.failed == client.unavailable
    time.sleep(0.2)
    assert client._life == lives


def test_process_that_was_given_up_is_started_again_when_somebody_asks_later(own_client, monkeypatch):
    client = own_client((sys.executable, "-c", "raise SystemExit(3)"))
    held = client.hold(scenario(*OPS))
    wait_done(held)
    assert client.unavailable
    monkeypatch.setattr("pagedviz.runtime.client.SHORT_LIFE", 0.0)
    client._command = WORKER
    again = client.hold(scenario(*OPS), held)
    wait_done(again)
    assert client.unavailable == ""
    assert_computed(again.run)


def test_run_that_kills_the_process_is_given_up_and_the_others_are_not(own_client):
    client = own_client(
        broken_worker(
            "import os\nfrom pagedviz.runtime.computing.toy_model import ToyModel\nembed = ToyModel.embed\n"
            "ToyModel.embed = lambda self, token: os.kill(os.getpid(), 9) if token == 'die' else embed(self, token)"
        )
    )
    bad = client.hold(scenario(Add("A", ("a",)), Append("A", ("die",))))
    good = client.hold(scenario(*OPS))
    wait_done(bad, good)
    assert bad.run.failed == (
        f"The compute process stopped {MAX_CRASHES} times at the same step of this run (ended by SIGKILL), "
        "so it is not tried again. What has been checked stays."
    )
    assert [step.event.kind for step in bad.run.steps][-1] == "TokenWritten"
    assert len(bad.run.steps) == 3
    assert_computed(good.run)
    assert "was started again" in good.run.notice


def test_error_in_the_process_is_named_in_the_sentence(own_client, monkeypatch):
    monkeypatch.setattr("pagedviz.runtime.client.MAX_CRASHES", 1)
    client = own_client(
        broken_worker(
            "import sys, os\nsys.stderr = open(os.devnull, 'w')\nfrom pagedviz.runtime.cache.kv_cache import KVCache\n"
            "def out(self, *size): raise RuntimeError('CUDA out of memory')\nKVCache.__init__ = out"
        )
    )
    held = client.hold(scenario(*OPS))
    wait_done(held)
    assert "(RuntimeError: CUDA out of memory)" in held.run.failed
    assert client.unavailable == ""


def test_close_ends_the_process_for_good(own_client):
    client = own_client()
    process = client._process
    client.close()
    assert process.wait(timeout=60) == -signal.SIGKILL
    time.sleep(0.1)
    assert client._process is process


# --- the app's side ---


def test_app_side_imports_neither_torch_nor_triton():
    plain = [f"pagedviz.{path.stem}" for path in (PROJECT / "pagedviz").glob("[!_]*.py")]
    code = (
        f"import sys, importlib\nfor name in {[*plain, 'pagedviz.runtime.client', 'pagedviz.engine.log.replay']}:\n"
        "    importlib.import_module(name)\n"
        "print(sorted({'torch', 'triton', 'kernels', 'streamlit'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_large_scenario_is_taken_at_once(client):
    """A thousand operations are more than a pipe holds; the process reads while it computes."""
    ops = (Add("A", ("a",)), *(Free("X") for _ in range(990)))
    started = time.monotonic()
    held = client.hold(Scenario(12, CacheConfig(num_blocks=2, num_layers=1, num_heads=1, head_dim=2), ops))
    assert time.monotonic() - started < 5
    wait(lambda: held.run.checks, "its first state")
    held.let_go()
