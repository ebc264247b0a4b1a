"""Beam search: of all next tokens of all beams, the likeliest continuations stay."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pagedviz.engine.log.events.base import Token

Candidates = Sequence[tuple[Token, float]]  # the possible next tokens of one beam, each with its log-probability


class Beam(NamedTuple):
    """A continuation: the outputs of `parent` and one more `token`. `score` is the sum of all log-probabilities."""

    parent: str
    token: Token
    score: float


def likeliest(scores: Mapping[str, float], candidates: Mapping[str, Candidates], num_beams: int) -> list[Beam]:
    """The best continuations of all beams together, best first; of equal ones, those of the better beam come first.

    Example: two beams, x at -1 and y at -2; x can continue with a (-1) or b (-3), y with c (-0.5)
    -> x a (-2), y c (-2.5).
    """
    all_beams = [
        Beam(parent, token, scores.get(parent, 0.0) + log_probability)
        for parent, own in candidates.items()
        for token, log_probability in own
    ]
    return sorted(all_beams, key=lambda beam: -beam.score)[:num_beams]
