"""Requests through the real kernels: mixed launches, hits on blocks of the same launch, preemption both ways."""

import pytest

from pagedviz.engine.policies.limits import Limits
from pagedviz.runtime.checking.tolerance import TOLERANCE
from pagedviz.scenario.operations import Abort, EngineSteps, Submit
from pagedviz.scenario.settings import CacheConfig
from tests.runtime.runner.runner_cases import Played

pytestmark = pytest.mark.slow

SMALL = {"block_size": 2, "num_layers": 2, "num_heads": 2, "num_kv_heads": 1, "head_dim": 4}


def play(*ops, **cache):
    """All steps of a run, each checked; returns what was played."""
    played = Played(*ops, cache=CacheConfig(**SMALL | {"profile": "vllm-v1", "num_blocks": 12} | cache))
    wrong = [(happening.event.kind, check.broken, check.max_error) for happening, check in played.steps if not check.ok]
    assert wrong == []
    return played


def launches(played):
    return [happening.event for happening, _ in played.steps if hasattr(happening.event, "writes")]


def outputs(played):
    return {s: request.output for s, request in played.steps[-1][0].snapshot.requests.items()}


def test_one_launch_writes_a_chunk_of_one_and_the_newest_token_of_another():
    played = play(
        Submit("A", tuple("ab"), 4),
        EngineSteps(1),
        Submit("B", tuple("cdefg"), 2),
        EngineSteps(4),
        scheduler=Limits(4, 2),
    )
    mixed = launches(played)[1]
    assert [(w.seq_id, w.position, len(w.tokens)) for w in mixed.writes] == [("A", 2, 1), ("B", 0, 3)]
    check = next(check for happening, check in played.steps if happening.event is mixed)
    assert (check.compared, set(check.weights)) == (2, {"A", "B"})


def test_a_block_that_the_same_launch_fills_is_attended_through_and_judged():
    played = play(Submit("A", tuple("abcde"), 2), Submit("B", tuple("abcdx"), 2), EngineSteps(2), prefix_caching=True)
    hits = [happening.event for happening, _ in played.steps if happening.event.kind == "BlockHit"]
    assert [(hit.seq_id, hit.computed) for hit in hits] == [("B", False), ("B", False)]
    assert [(w.seq_id, w.position) for w in launches(played)[0].writes] == [("A", 0), ("B", 4)]


@pytest.mark.parametrize(
    ("preemption", "prefix_caching"),
    [pytest.param("recompute", False, marks=pytest.mark.gpu), ("recompute", True), ("swap", False)],
)
def test_a_preempted_request_has_the_outputs_that_it_would_have_had(preemption, prefix_caching):
    ops = (Submit("A", tuple("abc"), 4), Submit("B", tuple("def"), 4), EngineSteps(40))
    config = {"prefix_caching": prefix_caching, "policies": (("preemption", preemption),), "host_blocks": 6}
    pressed = play(*ops, num_blocks=6, **config)
    happened = [happening.event.kind for happening, _ in pressed.steps]
    assert "RequestPreempted" in happened
    assert ("BlockSpilled" in happened) == (preemption == "swap")
    alone = play(*ops, num_blocks=12, **config)
    assert "RequestPreempted" not in [happening.event.kind for happening, _ in alone.steps]
    assert outputs(pressed) == outputs(alone)
    assert all(len(output) == 4 for output in outputs(alone).values())


def test_steps_go_on_after_one_in_which_the_first_preempted_itself():
    policies = (("victim", "least_urgent"),)
    ops = (Submit("low", tuple("abc"), 6, priority=1), Submit("high", tuple("def"), 6), EngineSteps(40))
    played = play(*ops, num_blocks=7, policies=policies)
    preempted = [happening.event for happening, _ in played.steps if happening.event.kind == "RequestPreempted"]
    assert [(event.seq_id, event.requester) for event in preempted] == [("low", "low")]
    assert all(len(output) == 6 for output in outputs(played).values())


def test_an_aborted_request_leaves_only_poison():
    played = play(Submit("A", tuple("abc"), 6), EngineSteps(2), Abort("A"))
    state = played.steps[-1][0].snapshot
    assert (dict(state.block_tables), state.ref_counts) == ({}, {})
    assert played.runner.kv.k.isnan().all()


def test_a_hit_on_a_block_of_the_same_launch_behind_other_tokens_is_found():
    """The hash says that B may name A's block; here A's first token is another one when the launch computes it."""
    played = Played(cache=CacheConfig(**SMALL, num_blocks=12, profile="vllm-v1", prefix_caching=True))
    embed = played.runner.model.embed
    played.play(Submit("A", tuple("abcde"), 1), Submit("B", tuple("abcdx"), 1))
    seen = []

    def other(token):
        seen.append(token)
        return embed("z" if len(seen) == 1 else token)

    played.runner.model.embed = other
    before = len(played.steps)
    played.play(EngineSteps(1))
    (check,) = [check for happening, check in played.steps[before:] if happening.event.kind == "BatchWritten"]
    assert check.max_error > TOLERANCE
    assert check.failed == ("B",)
