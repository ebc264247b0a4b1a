"""When the host tier stores a block. A policy is one function: the cache asks it with every offer of a block.

The tier skips what it has already, so a policy may say yes again: a block whose store was refused or failed, or whose
copy was evicted, gets its next chance then. Source: SGLang's HiCache.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Offer:
    """A full block on the device that the tier may store, and what is about to happen to it.

    "computed": its tokens are all written. "hit": one more sequence names it instead of computing. "evicted": it is to
    be handed out for other tokens. `hit_count` is how many sequences used it so far; who computed it is the first.
    """

    what: Literal["computed", "hit", "evicted"]
    hit_count: int


WritePolicy = Callable[[Offer], bool]


def when_asked(offer: Offer) -> bool:
    """Never by itself: somebody says `store`."""
    return False


def write_through(offer: Offer) -> bool:
    """As soon as it is computed: the copy is there before the device needs the room, and most copies are never used."""
    return offer.what != "evicted"


def write_back(offer: Offer) -> bool:
    """Not before it has to go: nothing is copied in vain while there is room, and whoever wants the block must wait."""
    return offer.what == "evicted"


def on_second_hit(offer: Offer) -> bool:
    """When a second sequence uses it: what one sequence alone wanted is never copied.

    HiCache calls it write_through_selective and counts alike: who computes a block is its first hit.
    """
    return offer.what != "evicted" and offer.hit_count >= 2
