"""How much a server guesses ahead. The drafts are a drafter's; this says how many of them a launch verifies."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Speculation:
    """`num_drafts` tokens at most are drafted for each request in each engine step; 0 drafts none.

    They are cut before the first whose confidence, 0 to 1, is below `min_confidence`. One launch verifies `load_limit`
    at most, over all requests, so that a busy engine guesses less.
    """

    num_drafts: int = 0
    min_confidence: float = 0.0
    load_limit: int = 32
