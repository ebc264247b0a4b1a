"""A cheap guess of the toy model's next words, for speculative decoding: one parallel guess, corrected word by word.

First the part of the context is computed for all k positions at once; every attention is replaced by the plain average
of the values that it would see. Then each position adds the hidden state of the word chosen just before it, computed
without attention. Nothing is trained: the weights are the toy model's own. Of some 700 drafts behind 8 to 15 tokens,
counted up to the first wrong one, 38% to 52% are right, depending on the model's shape (tests/model/test_drafter.py).
A random guess would be right in 1%.
"""

import functools
from collections.abc import Sequence

import numpy as np

from pagedviz.engine.log.events.base import Token
from pagedviz.model.dense_model import Array, double_weights, embedding, gelu, norm, windows
from pagedviz.model.vocabulary import VOCABULARY
from pagedviz.scenario.settings import CacheConfig

# A confidence multiplies the scores by this before the softmax. So on average it equals the part of the drafts that are
# right.
SHARPNESS = 3.0
CONTEXT = 64  # of so many newest tokens


def drafts(
    cache: CacheConfig, seed: int, tokens: Sequence[Token], k: int, corrected: bool = True
) -> list[tuple[Token, float]]:
    """Draft the k words behind `tokens` (at least one). Each has a confidence in (0, 1], to four digits.

    The confidence is the chosen word's share of a softmax over the corrected scores. Without `corrected`, the parallel
    guess is not corrected.
    """
    drawn = double_weights(cache, seed)
    chosen: list[tuple[Token, float]] = []
    word = tokens[-1]
    for guess in _guesses(cache, seed, tokens, k):
        scores = norm(guess + _alone(cache, seed, word) if corrected else guess) @ drawn.head
        word = VOCABULARY[int(np.argmax(scores))]
        confidence = 1 / np.exp(SHARPNESS * (scores - scores.max())).sum()
        chosen.append((word, max(round(float(confidence), 4), 0.0001)))
    return chosen


def _guesses(cache: CacheConfig, seed: int, tokens: Sequence[Token], k: int) -> Array:
    """The context's part of the last hidden state, for each of the next k positions: [k, hidden]."""
    x = np.stack([embedding(cache, seed, token) for token in tokens[-CONTEXT:]]).astype(np.float64)
    guesses = np.zeros((k, x.shape[1]))
    for w, window in zip(double_weights(cache, seed).layers, windows(cache), strict=True):
        values = (norm(x) @ w["v"]).reshape(len(x), cache.num_kv_heads, -1)
        added = np.repeat(values, cache.num_heads // cache.num_kv_heads, axis=1).reshape(len(x), -1) @ w["out"]
        averages = _averages(np.concatenate((added, np.zeros((k, added.shape[1])))), window)
        guesses += averages[len(x) :]
        x = x + averages[: len(x)]
        x = x + gelu(norm(x) @ w["up"]) @ w["down"]
    return guesses


def _averages(rows: Array, window: int | None) -> Array:
    """For each position the average of the rows up to it, at most the newest `window` of them."""
    sums, positions = np.cumsum(rows, axis=0), np.arange(len(rows))
    seen = positions + 1 if window is None else np.minimum(positions + 1, window)
    hidden = np.concatenate((np.zeros_like(sums[:1]), sums))[positions + 1 - seen]
    averages: Array = (sums - hidden) / seen[:, None]
    return averages


@functools.lru_cache(maxsize=4096)
def _alone(cache: CacheConfig, seed: int, token: Token) -> Array:
    """A token's last hidden state without attention: [hidden]."""
    x = embedding(cache, seed, token).astype(np.float64)
    for w in double_weights(cache, seed).layers:
        x = x + gelu(norm(x) @ w["up"]) @ w["down"]
    return x
