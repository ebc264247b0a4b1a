"""What the model says: its scores become words, greedily, by chance, as candidates of a beam, or as drafts."""

from collections.abc import Callable, Sequence

from pagedviz import drafter, sampling
from pagedviz.cache_config import CacheConfig
from pagedviz.dense_model import Array
from pagedviz.engine.beams import Candidates
from pagedviz.engine.events import Token

Logits = Callable[[str, int], Array]


class Speaker:
    """`logits(seq_id, position)` are the model's scores of the token after `position` of a sequence in the cache. Where
    a choice is closer to the next best than `margin`, TooClose is raised."""

    def __init__(self, cache: CacheConfig, seed: int, logits: Logits, margin: float) -> None:
        self._cache, self._seed, self._logits, self._margin = cache, seed, logits, margin

    def greedy(self, seq_id: str, position: int) -> Token:
        """The likeliest token after a position."""
        return sampling.greedy(self._sure(self._logits(seq_id, position)))

    def sampled(self, seq_id: str, position: int) -> Token:
        """A token drawn by what chance gives this sequence at this position."""
        scores = sampling.noised(self._logits(seq_id, position), self._seed, seq_id, position)
        return sampling.greedy(self._sure(scores))

    def candidates(self, seq_id: str, position: int, k: int) -> Candidates:
        """The k likeliest tokens after a position, with their log-probabilities."""
        return sampling.best(self._sure(self._logits(seq_id, position), k), k)

    def drafts(self, tokens: Sequence[Token], k: int) -> list[tuple[Token, float]]:
        """The drafter's guess at the k tokens behind these, each with its confidence."""
        return drafter.drafts(self._cache, self._seed, tokens, k)

    def _sure(self, scores: Array, k: int = 1) -> Array:
        if sampling.gap(scores, k) < self._margin:
            raise sampling.TooClose
        return scores


def confident(drafts: Sequence[tuple[Token, float]], least: float) -> list[tuple[Token, float]]:
    """Drafts up to the first that is less confident. Example: 0.9, 0.2, 0.8 with 0.5 asked for -> the first."""
    end = next((i for i, (_, confidence) in enumerate(drafts) if confidence < least), len(drafts))
    return list(drafts[:end])
