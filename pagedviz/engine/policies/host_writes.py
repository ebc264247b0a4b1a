"""When a block is offered to the host tier. A policy is one function: it is asked at each moment of a block's life.

The tier skips what it has already, so a policy may say yes again: a block whose store was refused or failed, or whose
copy was evicted, gets its next chance then. Source: SGLang's HiCache.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Moment:
    """What is about to happen to a full block on the device.

    "computed": its tokens are all written. "hit": one more sequence names it instead of computing. "evicted": it is to
    be handed out for other tokens. `hit_count` is how many sequences used it so far; who computed it is the first.
    """

    what: Literal["computed", "hit", "evicted"]
    hit_count: int


WritePolicy = Callable[[Moment], bool]


def when_asked(moment: Moment) -> bool:
    """Never by itself: somebody says `store`."""
    return False


def write_through(moment: Moment) -> bool:
    """As soon as it is computed: the copy is there before the device needs the room, and most copies are never used."""
    return moment.what != "evicted"


def write_back(moment: Moment) -> bool:
    """Not before it has to go: nothing is copied in vain while there is room, and whoever wants the block must wait."""
    return moment.what == "evicted"


def on_second_hit(moment: Moment) -> bool:
    """When a second sequence uses it: what one sequence alone wanted is never copied.

    HiCache calls it write_through_selective and counts alike: who computes a block is its first hit.
    """
    return moment.what != "evicted" and moment.hit_count >= 2
