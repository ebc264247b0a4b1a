"""Beams and samples on the real kernels say what a model without a cache says."""

import math
from dataclasses import replace

import pytest

from pagedviz.model import sampling
from pagedviz.model.vocabulary import VOCABULARY
from pagedviz.run.play import planner
from pagedviz.scenario.operations import EngineSteps, Submit
from tests.model.model_cases import dense
from tests.runtime.runner.runner_cases import TINY, Played

pytestmark = pytest.mark.slow

CACHE = replace(TINY, num_blocks=24, fork=True)
PROMPT = ("a", "b", "c")


def beam_search(cache, seed, prompt, num_beams, num_tokens):
    """By sequence: outputs and score, best first; over the whole vocabulary, without a cache."""
    beams, made = {"R.1": ((), 0.0)}, 1
    for _ in range(num_tokens):
        grown = []
        for name, (said, score) in beams.items():
            logits = dense(cache, seed, (*prompt, *said))[2][-1]
            for word, more in zip(VOCABULARY, logits.log_softmax(0).tolist(), strict=True):
                grown.append((score + more, name, (*said, word)))
        grown.sort(key=lambda beam: -beam[0])
        beams = {}
        for score, parent, said in grown[:num_beams]:
            name = parent
            if parent in beams:
                made += 1
                name = f"R.{made}"
            beams[name] = (said, score)
    return beams


SEARCH = (Submit("R", PROMPT, 4, beams=3), EngineSteps(6))


def assert_searched(request, seed):
    wanted = beam_search(CACHE, seed, PROMPT, 3, 4)
    assert list(request.outputs.items()) == [(name, said) for name, (said, _) in wanted.items()]
    assert list(request.scores.values()) == pytest.approx([score for _, score in wanted.values()], abs=1e-4)


@pytest.mark.parametrize("seed", range(6))
def test_planned_beams_are_those_of_a_search_without_a_cache(seed):
    plan = planner(CACHE, seed)
    last = [happening.snapshot for op in SEARCH for happening in plan.perform(op)][-1]
    assert_searched(last.requests["R"], seed)


def test_beams_on_the_kernels_are_those_of_a_search_without_a_cache():
    played = Played(*SEARCH, cache=CACHE)
    assert played.first_failure is None
    assert_searched(played.state.requests["R"], 0)
    assert {"SequenceForked", "BlockCopied"} <= {happening.event.kind for happening, _ in played.steps}
    assert_planned(played, SEARCH, 0)


def test_samples_are_drawn_from_the_softmax_of_a_model_without_a_cache():
    ops = (Submit("R", PROMPT, 4, samples=3), EngineSteps(6))
    played = Played(*ops, cache=CACHE, seed=1)
    assert played.first_failure is None
    outputs = played.state.requests["R"].outputs
    for seq_id, said in outputs.items():
        for n, word in enumerate(said):
            tokens = (*PROMPT, *said[:n])
            logits = dense(CACHE, 1, tokens)[2][-1].numpy()
            assert word == sampling.greedy(sampling.noised(logits, 1, seq_id, len(tokens) - 1))
    assert len(set(outputs.values())) == 3
    assert_planned(played, ops, 1)


def assert_planned(played, ops, seed):
    """The events are those of the plan, but for rounding in the scores of beams."""
    plan = planner(CACHE, seed)
    planned = [happening for op in ops for happening in plan.perform(op)]
    for (happening, _), wanted in zip(played.steps, planned, strict=True):
        event = happening.event
        if event.kind == "BeamsChosen":
            assert all(map(lambda a, b: math.isclose(a, b, abs_tol=1e-4), event.scores, wanted.event.scores))
            event = replace(event, scores=wanted.event.scores)
        assert event == wanted.event
