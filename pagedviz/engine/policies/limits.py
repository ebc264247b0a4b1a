"""The limits of one engine step: tokens, sequences, and drafts to verify."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """A step computes `max_num_batched_tokens` tokens at most (the token budget), for `max_num_seqs` sequences at most.
    Admissions leave the part `watermark` of the pool free, from 0 to 1."""

    max_num_batched_tokens: int = 32
    max_num_seqs: int = 8
    watermark: float = 0.0


@dataclass(frozen=True)
class Speculation:
    """`num_drafts` tokens at most are drafted for each request in each engine step; 0 drafts none.

    The drafts end before the first one with a confidence, 0 to 1, below `min_confidence`. One launch verifies
    `load_limit` drafts at most, over all requests, so a busy engine drafts less.
    """

    num_drafts: int = 0
    min_confidence: float = 0.0
    load_limit: int = 32
