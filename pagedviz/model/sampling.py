"""How scores become words: the greedy choice, a draw that every process repeats, the k best for a beam search."""

import hashlib

import numpy as np

from pagedviz.engine.log.events.base import Token
from pagedviz.model.dense_model import Array
from pagedviz.model.vocabulary import VOCABULARY


class TooClose(Exception):
    """Rounding could have changed this choice."""


def greedy(logits: Array) -> Token:
    """The word with the highest score; of equal ones, the first in the vocabulary."""
    return VOCABULARY[int(np.argmax(logits))]


def noised(logits: Array, seed: int, seq_id: str, position: int) -> Array:
    """The scores plus Gumbel noise. Their greedy choice is a draw from the softmax of the scores.

    The noise is drawn from a hash of the seed, the sequence and the position, so every process draws the same word.
    """
    digest = hashlib.sha256(f"{seed}:{seq_id}:{position}".encode()).digest()
    noise: Array = np.random.default_rng(int.from_bytes(digest[:16])).gumbel(size=len(logits))
    return logits + noise


def best(logits: Array, k: int) -> list[tuple[Token, float]]:
    """The k likeliest words with their log-probabilities, best first; equal ones in the order of the vocabulary."""
    scores = log_softmax(logits)
    return [(VOCABULARY[i], float(scores[i])) for i in np.argsort(-scores, kind="stable")[:k]]


def gap(scores: Array, k: int = 1) -> float:
    """The least distance between any of the k best scores and the next best. A smaller change keeps their order."""
    ranked = -np.sort(-np.asarray(scores, dtype=np.float64))[: k + 1]
    return float(np.min(-np.diff(ranked), initial=np.inf))


def log_softmax(logits: Array) -> Array:
    shifted = np.asarray(logits, dtype=np.float64) - np.max(logits)
    scores: Array = shifted - np.log(np.exp(shifted).sum())
    return scores
