"""What a step of the engine may do at most: how many tokens and sequences, and how many drafts it verifies."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Of a step: `max_num_batched_tokens` are computed at most (the token budget), for `max_num_seqs` sequences at
    most. `watermark` is the part of the pool, 0 to 1, that admissions leave free."""

    max_num_batched_tokens: int = 32
    max_num_seqs: int = 8
    watermark: float = 0.0


@dataclass(frozen=True)
class Speculation:
    """`num_drafts` tokens at most are drafted for each request in each engine step; 0 drafts none.

    They are cut before the first whose confidence, 0 to 1, is below `min_confidence`. One launch verifies `load_limit`
    at most, over all requests, so that a busy engine guesses less.
    """

    num_drafts: int = 0
    min_confidence: float = 0.0
    load_limit: int = 32
