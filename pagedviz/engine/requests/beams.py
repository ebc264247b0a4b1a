"""Beam search: of all that the beams could say next, the likeliest stay."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pagedviz.engine.log.events.base import Token

Candidates = Sequence[tuple[Token, float]]  # what one beam could say next, with its log-probability


class Beam(NamedTuple):
    """A continuation: `parent`'s outputs and one `token` more, with the sum of all log-probabilities."""

    parent: str
    token: Token
    score: float


def likeliest(scores: Mapping[str, float], candidates: Mapping[str, Candidates], num_beams: int) -> list[Beam]:
    """The best continuations of all beams together, best first; of equals, those of the better beam.

    Example: two beams, x at -1 and y at -2; x goes on with a (-1) or b (-3), y with c (-0.5) -> x a (-2), y c (-2.5).
    """
    all_beams = [
        Beam(parent, token, scores.get(parent, 0.0) + log_probability)
        for parent, own in candidates.items()
        for token, log_probability in own
    ]
    return sorted(all_beams, key=lambda beam: -beam.score)[:num_beams]
