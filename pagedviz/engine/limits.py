"""What a step of the engine may do at most."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Of a step: `max_num_batched_tokens` are computed at most (the token budget), for `max_num_seqs` sequences at
    most. `watermark` is the part of the pool, 0 to 1, that admissions leave free."""

    max_num_batched_tokens: int = 32
    max_num_seqs: int = 8
    watermark: float = 0.0
