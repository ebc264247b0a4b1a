"""When a block is offered to the host tier. A policy is one function, called with every offer of a block.

The tier skips a block that it has already, so a policy may answer True again. Then the tier stores a block again if the
first store was refused or failed, or if the copy was evicted. Source: SGLang's HiCache.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Offer:
    """What happens to a full block on the device.

    "computed": all of its tokens are written. "hit": one more sequence names it instead of computing its tokens.
    "evicted": it is about to be handed out for other tokens. `hit_count` is how many sequences have used it; the
    sequence that computed it is the first.
    """

    what: Literal["computed", "hit", "evicted"]
    hit_count: int


WritePolicy = Callable[[Offer], bool]


def when_asked(offer: Offer) -> bool:
    """Never by itself: only the operation `store` copies blocks."""
    return False


def write_through(offer: Offer) -> bool:
    """When it is computed. The copy is there before the device needs the room, but most copies are never used."""
    return offer.what != "evicted"


def write_back(offer: Offer) -> bool:
    """When it is evicted. Nothing is copied while the device has room, but the sequence that wants the block waits."""
    return offer.what == "evicted"


def on_second_hit(offer: Offer) -> bool:
    """When a second sequence uses it. A block that only one sequence used is never copied.

    HiCache calls it write_through_selective and counts in the same way: computing a block is its first hit.
    """
    return offer.what != "evicted" and offer.hit_count >= 2
