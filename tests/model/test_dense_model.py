"""The plan's model says what an independent one says, however its tokens come and whatever it remembers."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from pagedviz.model import dense_model
from pagedviz.model.dense_model import DenseModel
from pagedviz.model.vocabulary import VOCABULARY
from pagedviz.scenario.settings import CacheConfig
from tests.model.model_cases import dense

GQA = CacheConfig(num_layers=3, num_heads=6, num_kv_heads=2, head_dim=6)
TOKENS = ("Four", "score", "and", "seven", 7, "7", "🙂", "שלום", *VOCABULARY[:9])


CACHES = (
    GQA,
    replace(GQA, window=3),
    replace(GQA, num_layers=4, groups=(None, 4)),
    replace(GQA, groups=(2, None, 5)),
)


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize("cache", CACHES)
def test_logits_are_those_of_an_independent_dense_model_after_every_token(cache, seed):
    *_, wanted = dense(cache, seed, TOKENS)
    model = DenseModel(cache, seed)
    np.testing.assert_allclose(model.logits(TOKENS), wanted[-1], rtol=0, atol=1e-12)
    for n in range(1, len(TOKENS)):
        np.testing.assert_allclose(model.logits(TOKENS[:n]), wanted[n - 1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("cache", CACHES)
def test_tokens_one_by_one_in_pieces_and_all_at_once_say_the_same(cache, monkeypatch):
    one_by_one = DenseModel(cache, 0)
    grown = [one_by_one.logits(TOKENS[:n]) for n in range(1, len(TOKENS) + 1)]
    monkeypatch.setattr(dense_model, "PIECE", 4)
    np.testing.assert_allclose(grown[-1], DenseModel(cache, 0).logits(TOKENS), rtol=0, atol=1e-12)


def test_what_is_computed_once_is_remembered_and_forks_at_the_first_other_token(monkeypatch):
    computed, model = [], DenseModel(GQA, 0)
    real = DenseModel._compute
    monkeypatch.setattr(DenseModel, "_compute", lambda *given: (computed.append(given[-1]), real(*given))[1])
    for tokens in (TOKENS[:4], TOKENS[:6], (*TOKENS[:3], "x", "y"), TOKENS[:5]):
        model.logits(tokens)
    assert computed == [TOKENS[:4], TOKENS[4:6], ("x", "y")]


def test_a_full_memory_keeps_what_was_asked_last_however_much_that_is(monkeypatch):
    monkeypatch.setattr(dense_model, "KEPT_BYTES", 5_000)
    model, computed = DenseModel(GQA, 0), []
    real = DenseModel._compute
    monkeypatch.setattr(DenseModel, "_compute", lambda *given: (computed.append(given[-1]), real(*given))[1])
    for n in range(1, len(TOKENS) + 1):
        said = model.logits(TOKENS[:n])
    assert computed == [(token,) for token in TOKENS]
    np.testing.assert_allclose(said, DenseModel(GQA, 0).logits(TOKENS), rtol=0, atol=1e-12)
    model.logits(("x",))
    assert (list(model._first), model._kept_bytes) == (["x"], model._first["x"].num_bytes)


def test_sessions_may_ask_at_the_same_time():
    model, said = DenseModel(GQA, 0), []
    wanted = DenseModel(GQA, 0).logits(TOKENS)
    threads = [threading.Thread(target=lambda: said.append(model.logits(TOKENS))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for logits in said:
        np.testing.assert_allclose(logits, wanted, rtol=0, atol=1e-12)
    assert len(said) == 4


def test_seed_and_shape_alone_make_the_model():
    one = dense_model.weights(GQA, 3)
    same = dense_model.weights(replace(GQA, num_blocks=99, block_size=1, profile="vllm-v1"), 3)
    other = dense_model.weights(GQA, 4)
    assert all(np.array_equal(one.layers[2][name], same.layers[2][name]) for name in one.layers[2])
    assert not np.array_equal(one.head, other.head)
    assert not np.array_equal(dense_model.embedding(GQA, 0, 7), dense_model.embedding(GQA, 0, "7"))
