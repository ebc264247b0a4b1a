"""Probes through the real compute process: answered once their state is there, asked again of a new process."""

import json
import os
import signal
import sys
from dataclasses import replace

import pytest

from kernels import launch
from pagedviz import probe
from pagedviz.runtime import client as client_module
from pagedviz.runtime.client import KEPT_RUNS, ComputeClient
from pagedviz.runtime.running.runner import Runner
from pagedviz.runtime.worker import Worker
from pagedviz.scenario.operations import Add, Append
from pagedviz.scenario.scenario import Scenario
from tests.runtime.runner.runner_cases import TINY, ask
from tests.runtime.test_worker import wait, wait_done

pytestmark = pytest.mark.slow

LAUNCH = probe.Launch()


def scenario(seed: int, *ops) -> Scenario:
    return Scenario(seed, replace(TINY, num_layers=1), ops)


def answered(client: ComputeClient, held, index: int, asked=LAUNCH):
    wait(lambda: client.ask(held, index, asked), f"the answer of {held.run}")
    return client.ask(held, index, asked)


def here(scenario: Scenario, index: int):
    runner = Runner(scenario.cache, scenario.seed)
    for op in scenario.ops:
        list(runner.perform(op))
    return ask(runner, LAUNCH, index)


@pytest.fixture(scope="module")
def client():
    """One for all tests that leave its process alone."""
    client = ComputeClient()
    yield client
    client.close()


def test_answer_is_what_a_runner_here_answers_whenever_it_is_asked(client):
    run = scenario(1, Add("A", tuple("abc")), Append("A", ("x",)))
    held = client.hold(run)
    # Asked before its state is computed, and after.
    assert client.ask(held, 4, LAUNCH) is None
    assert held.run.waiting
    assert answered(client, held, 4) == here(run, 4)
    wait_done(held)
    assert answered(client, held, 5) == here(run, 5)
    assert not held.run.waiting
    # A continued run answers of its new states too.
    more = replace(run, ops=(*run.ops, Append("A", ("y",))))
    held = client.hold(more, held)
    assert answered(client, held, 6) == here(more, 6)


def test_question_outlives_the_compute_process():
    client = ComputeClient()
    try:
        run = scenario(2, Add("A", tuple("abc")))
        held = client.hold(run)
        wait_done(held)
        os.kill(client.pid, signal.SIGKILL)
        wait(lambda: client.pid and held.run.life != client._life, "the restart")
        assert answered(client, held, 4) == here(run, 4)
        # And one that was on its way.
        os.kill(client.pid, signal.SIGSTOP)
        assert client.ask(held, 3, LAUNCH) is None
        os.kill(client.pid, signal.SIGKILL)
        assert answered(client, held, 3) == here(run, 3)
    finally:
        client.close()


def test_run_that_nobody_held_is_computed_again_for_a_question(client):
    run = scenario(3, Add("A", tuple("abc")))
    held = client.hold(run)
    wait_done(held)
    checks = list(held.run.checks)
    held.let_go()
    held = client.hold(run)
    assert answered(client, held, 4) == here(run, 4)
    assert [check.ok for check in held.run.checks] == [check.ok for check in checks]
    assert KEPT_RUNS > 1


def test_question_of_a_session_that_left_is_forgotten():
    client = ComputeClient()
    try:
        run = scenario(9, Add("A", tuple("abc")))
        held = client.hold(run)
        wait_done(held)
        os.kill(client.pid, signal.SIGSTOP)
        assert client.ask(held, 3, LAUNCH) is None
        held.let_go()
        assert not client.hold(run).run.waiting
    finally:
        client.close()


def test_the_newest_answers_of_a_run_are_kept_up_to_so_many_bytes(client, monkeypatch):
    run = scenario(10, Add("A", tuple("abc")))
    sizes = [len(json.dumps(here(run, index))) for index in range(5)]
    held = client.hold(run)
    for index in range(4):
        assert answered(client, held, index)
    assert list(held.run.answers) == [(index, LAUNCH) for index in range(4)]
    monkeypatch.setattr(client_module, "KEPT_ANSWER_BYTES", sum(sizes[2:]))
    answered(client, held, 4)
    assert list(held.run.answers) == [(index, LAUNCH) for index in (2, 3, 4)]
    monkeypatch.setattr(client_module, "KEPT_ANSWER_BYTES", sizes[4] + sizes[0] - 1)
    answered(client, held, 0)
    assert list(held.run.answers) == [(0, LAUNCH)]
    # One that is too large by itself is shown all the same.
    monkeypatch.setattr(client_module, "KEPT_ANSWER_BYTES", 1)
    answered(client, held, 1)
    assert held.run.answer_bytes == {(1, LAUNCH): sizes[1]}


def spoken_to(*commands) -> list[dict]:
    """What a worker in this process replies to commands, after each of which it computes what there is to compute."""
    replies: list[dict] = []
    worker = Worker(replies.append)
    for command in commands:
        worker.handle(command)
        while worker.turn:
            worker.step()
    return replies


def opened(name: str, run: Scenario) -> tuple[dict, dict]:
    ops = [op.to_json() for op in run.ops]
    return {"open": name, "seed": run.seed, "cache": run.to_json()["cache"]}, {"extend": name, "ops": ops}


def test_state_that_a_run_does_not_reach_is_refused_and_not_waited_for():
    run = scenario(6, Add("A", tuple("abc")))
    asked = {"ask": "x", "index": 9, "probe": LAUNCH.to_json()}
    answers = [reply["answer"] for reply in spoken_to(*opened("x", run), asked) if "answer" in reply]
    assert answers == [{"refused": "There is no step 9: the run ends after 4."}]


def test_session_that_keeps_asking_does_not_hold_up_the_steps_of_others():
    replies: list[dict] = []
    worker = Worker(replies.append)
    for command in opened("x", scenario(7, Add("A", tuple("abc")))):
        worker.handle(command)
    while worker.turn:
        worker.step()
    for command in opened("y", scenario(8, Add("A", tuple("abc")))):
        worker.handle(command)
    del replies[:]
    for index in range(3):
        worker.handle({"ask": "x", "index": index, "probe": LAUNCH.to_json()})
    assert [(r["run"], r["index"]) for r in replies if "run" in r] == [
        ("x", 0), ("y", 0), ("x", 1), ("y", 1), ("x", 2), ("y", 2),
    ]  # fmt: skip


BROKEN = """
from pagedviz.runtime import probes, worker
from pagedviz.probe import Launch
def broken(asked, moment):
    raise RuntimeError("no such slot")
probes.ANSWERS[Launch] = broken
worker.main()
"""


def test_question_that_ends_the_process_is_given_up_and_the_run_is_not():
    client = ComputeClient((sys.executable, "-c", BROKEN))
    try:
        run = scenario(4, Add("A", tuple("abc")))
        held = client.hold(run)
        wait_done(held)
        found = answered(client, held, 2)
        assert found["refused"].startswith("The compute process stopped at this question (RuntimeError: no such slot)")
        assert (held.run.failed, held.run.crashes) == ("", [])
        assert not held.run.waiting
        assert client.hold(replace(run, ops=(*run.ops, Append("A", ("y",)))), held).run.failed == ""
    finally:
        client.close()


TOO_LARGE = """
import torch
from triton.runtime.errors import OutOfResources
from pagedviz.runtime import probes, worker
from pagedviz.probe import Launch, Lens
def needs_too_much(asked, moment):
    raise OutOfResources(155648, 101376, "shared memory")
def finds_no_memory(asked, moment):
    raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
probes.ANSWERS |= {Lens: needs_too_much, Launch: finds_no_memory}
worker.main()
"""


@pytest.mark.skipif(not launch.HAS_TRITON, reason="needs Triton")
def test_question_that_this_machine_is_too_small_for_is_refused_and_the_process_lives_on():
    client = ComputeClient((sys.executable, "-c", TOO_LARGE))
    try:
        held = client.hold(scenario(4, Add("A", tuple("abc"))))
        wait_done(held)
        pid = client.pid
        needs = "A kernel that this takes needs 155,648 bytes of shared memory, and this GPU has 101,376; "
        needs += "smaller blocks (here 2 tokens) or heads (here 4 numbers) need less."
        assert answered(client, held, 4, probe.Lens("A", 0, 0)) == {"refused": needs}
        assert answered(client, held, 4) == {
            "refused": "This machine's GPU has too little memory left for what this takes."
        }
        assert answered(client, held, 4, probe.LazyRescale("A", 0, 0, 4, 8))["ok"]
        assert client.pid == pid
    finally:
        client.close()


def test_stopped_run_says_so(client):
    held = client.hold(scenario(5, Add("A", tuple("abcdefgh")), Append("A", ("x",))))
    stopped = client.stop(held)
    assert client.ask(stopped, 0, LAUNCH) == {
        "refused": "Checking was stopped. What has been checked stays. Until it goes on, no question is answered."
    }
