"""The drafter is right often enough to be worth verifying, and the same in every process."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from pagedviz.model import drafter, sampling
from pagedviz.model.dense_model import DenseModel
from pagedviz.model.drafter import drafts
from pagedviz.model.vocabulary import VOCABULARY
from pagedviz.scenario.settings import CacheConfig

SHAPES = (
    CacheConfig(),
    CacheConfig(num_layers=1),
    CacheConfig(num_heads=4, num_kv_heads=2, head_dim=16),
    CacheConfig(num_layers=4, num_heads=4, num_kv_heads=2, head_dim=16),
    CacheConfig(groups=(None, 8)),
)
WORDS = "Four score and seven years ago our fathers brought forth on this continent a new nation".split()
CONTEXT = ("Four", "score", 7, "and", "🙂")


def verified(cache, seeds):
    """Of drafts of 4 behind a prompt of 7 words and some greedy outputs, each up to the first wrong one: was it right,
    and with which confidence?"""
    found = []
    for seed in seeds:
        model, tokens = DenseModel(cache, seed), list(np.random.default_rng(seed).permutation(WORDS)[:7])
        tokens = [str(token) for token in tokens]
        for _ in range(12):
            tokens.append(sampling.greedy(model.logits(tokens)))
        for n in range(8, len(tokens) - 4):
            for wanted, (token, confidence) in zip(tokens[n:], drafts(cache, seed, tokens[:n], 4), strict=False):
                found.append((token == wanted, confidence))
                if token != wanted:
                    break
    return np.array(found)


@pytest.mark.parametrize("cache", SHAPES)
def test_a_third_to_half_of_the_drafts_is_right_and_the_confident_ones_are_right_more_often(cache):
    right, confidence = verified(cache, range(60)).T
    assert 0.3 <= right.mean() <= 0.7
    sure = confidence > np.median(confidence)
    assert right[sure].mean() > right[~sure].mean() + 0.1
    assert abs(right.mean() - confidence.mean()) < 0.15


def test_confidences_are_above_0_at_most_1_and_short():
    for seed in range(20):
        for token, confidence in drafts(CacheConfig(), seed, CONTEXT, 8):
            assert token in VOCABULARY
            assert 0 < confidence <= 1
            assert confidence == round(confidence, 4)


def test_more_drafts_begin_with_the_same_ones():
    eight = drafts(CacheConfig(), 0, CONTEXT, 8)
    assert [drafts(CacheConfig(), 0, CONTEXT, k) for k in range(9)] == [eight[:k] for k in range(9)]


def test_only_the_newest_tokens_count():
    long = tuple(range(drafter.CONTEXT))
    assert drafts(CacheConfig(), 0, ("x", "y", *long), 4) == drafts(CacheConfig(), 0, long, 4)
    assert drafts(CacheConfig(), 0, long, 4) != drafts(CacheConfig(), 0, long[-8:], 4)


def test_another_process_drafts_the_same():
    cache = replace(CacheConfig(), num_heads=8, head_dim=64)
    code = (
        "import json, sys; from pagedviz.model import drafter; from pagedviz.scenario import settings;"
        "cache, tokens = json.loads(sys.argv[1]);"
        "print(json.dumps(drafter.drafts(settings.cache_from_json(cache), 5, tokens, 6)))"
    )
    asked = json.dumps([cache.to_json(), CONTEXT])
    said = subprocess.run([sys.executable, "-c", code, asked], capture_output=True, text=True, check=True).stdout
    assert [tuple(pair) for pair in json.loads(said)] == drafts(cache, 5, CONTEXT, 6)


def test_each_draft_is_corrected_by_the_one_before_it(monkeypatch):
    as_it_is = drafts(CacheConfig(), 0, CONTEXT, 4)
    real = drafter._alone
    monkeypatch.setattr(drafter, "_alone", lambda cache, seed, token: real(cache, seed, CONTEXT[-1]))
    uncorrected = drafts(CacheConfig(), 0, CONTEXT, 4)
    assert uncorrected[0] == as_it_is[0]
    assert uncorrected[1:] != as_it_is[1:]


@pytest.mark.parametrize("window", [None, 1, 3, 50])
def test_a_windowed_layer_averages_what_its_window_shows(window):
    rows = np.random.default_rng(0).standard_normal((9, 4))
    wanted = [rows[max(0, i + 1 - (window or 99)) : i + 1].sum(axis=0) / min(i + 1, window or 99) for i in range(9)]
    np.testing.assert_allclose(drafter._averages(rows, window), wanted, atol=1e-12)


def test_windows_change_the_drafts():
    assert drafts(replace(CacheConfig(), window=2), 0, CONTEXT, 4) != drafts(CacheConfig(), 0, CONTEXT, 4)
