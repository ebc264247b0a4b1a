"""A recording gives back every earlier state of a run: tables, logs, and the very bits of K and V."""

from dataclasses import replace

import pytest

from pagedviz import probe
from pagedviz.engine.log.replay import history
from pagedviz.probe import Probe
from pagedviz.runtime.cache.kv_cache import KVCache
from pagedviz.runtime.running import recording
from pagedviz.runtime.running.runner import Runner
from pagedviz.scenario.operations import Add, Append, Draft, EndTransfer, Fork, Free, Load, Op, Reload, Spill, Verify
from pagedviz.scenario.settings import CacheConfig
from tests.runtime.runner.runner_cases import TINY, ask, same_bits

pytestmark = pytest.mark.slow

OPS: tuple[Op, ...] = (
    Add("A", tuple("abc")),
    Fork("A", "B"),
    Append("B", ("x",)),
    Append("A", tuple("yz")),
    Spill("A"),
    Free("B"),
    Add("B", tuple("no")),
    Reload("A"),
    Append("A", ("w",)),
    Free("A"),
)


WORDS = tuple("abcdefg")
DRAFTS = (Draft("A", 2, ("x", 7)), Verify("A"))
# Windows and groups with drafts and a hit; and the host tier.
OTHERS: tuple[tuple[CacheConfig, tuple[Op, ...]], ...] = (
    (
        replace(TINY, num_blocks=24, profile="vllm-v1", prefix_caching=True, groups=(None, 4)),
        (Add("A", WORDS), *DRAFTS, Append("A", ("h",)), Free("A"), Add("B", (*WORDS, "i"))),
    ),
    (
        replace(TINY, profile="vllm-v1", prefix_caching=True, host_chunks=4),
        (
            Add("A", WORDS[:4]),
            Free("A"),
            Add("B", tuple("zyxwvutsrqpo")),
            Free("B"),
            Load(WORDS),
            EndTransfer(3, "fail"),
        ),
    ),
)


def memory(kv):
    return [kv.k, kv.v, kv.host_k, kv.host_v, kv.chunk_k, kv.chunk_v]


def played(cache=TINY, ops=OPS):
    """A runner, and after each of its states a copy of everything that it held."""
    runner = Runner(cache, 0)
    runner.check_start()
    states = [([tensor.clone() for tensor in memory(runner.kv)], {}, runner.player.base)]
    for op in ops:
        for happening, check in runner.perform(op):
            assert check.ok
            logged = {s: [len(log.x), *log.q[1]] for s, log in runner.log.sequences.items()}
            states.append(([tensor.clone() for tensor in memory(runner.kv)], logged, happening.snapshot))
    return runner, states


@pytest.mark.parametrize("key_frame", [64, 3])
@pytest.mark.parametrize("room", [recording.FRAME_BYTES, 0])
def test_every_state_can_be_had_again_in_any_order(monkeypatch, key_frame, room):
    monkeypatch.setattr(history, "KEY_FRAME", key_frame)
    monkeypatch.setattr(recording, "KEY_FRAME", key_frame)
    monkeypatch.setattr(recording, "FRAME_BYTES", room)
    runner, states = played()
    last = len(states) - 1
    assert last > 20
    for index in (last, 0, 7, 8, 3, last - 1, *range(0, last, 5), last):
        held, logged, snapshot = states[index]
        moment = runner.recording.at(index)
        assert moment.snapshot == snapshot
        assert same_bits(memory(moment.kv), held)
        assert moment.log.keys() == logged.keys()
        for seq_id, (length, *queries) in logged.items():
            assert snapshot.seq_len(seq_id) == length or not snapshot.tokens[seq_id]
            assert same_bits(moment.log[seq_id].q[1][: len(queries)], queries)


@pytest.mark.parametrize(("cache", "ops"), OTHERS, ids=["groups and drafts", "host tier"])
def test_windows_groups_drafts_and_chunks_can_be_had_again(cache, ops):
    runner, states = played(cache, ops)
    for index in (*range(0, len(states), 4), len(states) - 1):
        moment = runner.recording.at(index)
        assert moment.snapshot == states[index][2]
        assert same_bits(memory(moment.kv), states[index][0])


def test_frame_is_copied_once_however_often_it_is_passed(monkeypatch):
    monkeypatch.setattr(recording, "KEY_FRAME", 3)
    copies = []
    real = KVCache.clone
    monkeypatch.setattr(KVCache, "clone", lambda kv: copies.append(kv) or real(kv))
    runner, _ = played()
    for index in (8, 2, 8, 2, 8):
        runner.recording.at(index)
    assert len(copies) == 2


def test_looking_back_leaves_the_run_as_it_is():
    runner, states = played()
    runner.recording.at(4)
    assert same_bits(memory(runner.kv), states[-1][0])


def test_moment_knows_what_was_asked_for_so_far():
    runner, _ = played()
    assert runner.recording.at(0).scenario.ops == ()
    assert runner.recording.at(0).event is None
    moment = runner.recording.at(4)
    assert moment.event.kind == "TokensWritten"
    assert moment.scenario.ops == OPS[:1]
    assert moment.scenario.cache == TINY


@pytest.mark.parametrize("asked", [probe.Lens("A", 1, 0, 3), probe.Launch()])
def test_probe_survives_json(asked):
    assert Probe.from_json(asked.to_json()) == asked


def test_launch_probe_tells_the_tensors_of_a_mixed_batch():
    runner = Runner(TINY, 0)
    ops = (Add("A", tuple("abc")), Add("B", tuple("xy")))
    events = [happening.event for op in ops for happening, _ in runner.perform(op)]
    tables = runner.player.manager.snapshot().block_tables
    found = ask(runner, probe.Launch(), len(events))
    assert found["kernel"] == "paged_prefill"
    assert found["seq_ids"] == ["A", "B"]
    assert found["query_start_loc"] == [0, 1, 3]
    assert found["slot_mapping"] == [-1, *events[-1].slots]
    assert found["seq_lens"] == [3, 2]
    assert [row[: len(tables[s])] for s, row in zip("AB", found["block_tables"], strict=True)] == [
        list(tables["A"]),
        list(tables["B"]),
    ]
    assert found["block_tables"][1][1] == -1
    nothing = ask(runner, probe.Launch(), 0)
    assert (nothing["seq_ids"], nothing["slot_mapping"]) == ([], [])
