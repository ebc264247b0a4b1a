"""The model's scores become tokens: the greedy choice, a sample, the candidates of a beam, or drafts."""

from collections.abc import Callable, Sequence

import numpy as np

from pagedviz.engine.log.events.base import Token
from pagedviz.engine.requests.beams import Candidates
from pagedviz.model import drafter, sampling
from pagedviz.model.dense_model import Array
from pagedviz.scenario.settings import CacheConfig

Logits = Callable[[str, int], Array]


class Decoder:
    """Chooses the next tokens of sequences.

    `logits(seq_id, position)` are the model's scores of the token after `position` of a sequence in the cache. If a
    choice is closer to the next best than `margin`, TooClose is raised.
    """

    def __init__(self, cache: CacheConfig, seed: int, logits: Logits, margin: float) -> None:
        self._cache, self._seed, self._logits, self._margin = cache, seed, logits, margin

    def greedy(self, seq_id: str, position: int) -> Token:
        """The likeliest token after a position."""
        scores = self._logits(seq_id, position)
        self.must_be_sure(scores)
        return sampling.greedy(scores)

    def sampled(self, seq_id: str, position: int) -> Token:
        """A token drawn by chance. Each sequence and position has its own draw."""
        scores = sampling.noised(self._logits(seq_id, position), self._seed, seq_id, position)
        self.must_be_sure(scores)
        return sampling.greedy(scores)

    def candidates(self, seq_id: str, position: int, k: int) -> Candidates:
        """The k likeliest tokens after a position, with their log-probabilities."""
        scores = self._logits(seq_id, position)
        self.must_be_sure(scores, k)
        return sampling.best(scores, k)

    def drafts(self, tokens: Sequence[Token], k: int) -> list[tuple[Token, float]]:
        """The drafter's guess of the next k tokens, each with its confidence."""
        return drafter.drafts(self._cache, self._seed, tokens, k)

    def must_be_sure(self, scores: Array | Sequence[float], k: int = 1) -> None:
        """Raise TooClose if rounding could change which scores are the k best, or their order."""
        if sampling.gap(np.asarray(scores), k) < self._margin:
            raise sampling.TooClose


def confident(drafts: Sequence[tuple[Token, float]], least: float) -> list[tuple[Token, float]]:
    """The drafts before the first one with less confidence. Example: 0.9, 0.2, 0.8 and `least` 0.5 -> the first."""
    end = next((i for i, (_, confidence) in enumerate(drafts) if confidence < least), len(drafts))
    return list(drafts[:end])
