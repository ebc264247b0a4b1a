"""Questions that only the tensors can answer: put to one state of a run, answered by the compute process.

A probe is data; what answers it is a function of the same name in `pagedviz/runtime/probes/`. An answer is plain JSON,
or {"refused": one sentence}.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from pagedviz.engine.log.events.base import frozen

Answer = Mapping[str, Any]
NOT_FINITE = "A number that the kernel gave is not finite, so it is wrong, and nothing is shown of it."


@dataclass(frozen=True)
class Probe:
    """Something to ask. `Probe.kinds` has every kind by its name.

    What a page shows is asked of the page's own state, or, where it `follows`, of each state that the stage goes to.
    """

    kinds: ClassVar[dict[str, type["Probe"]]] = {}
    follows: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        Probe.kinds[cls.__name__] = cls

    def to_json(self) -> dict[str, Any]:
        return {"kind": type(self).__name__, **dataclasses.asdict(self)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Probe":
        fields = {name: frozen(value) for name, value in data.items()}
        return Probe.kinds[str(fields.pop("kind"))](**fields)


@dataclass(frozen=True)
class Lens(Probe):
    """What the decode kernel did for the newest token of a sequence, turn by turn, as it reports itself.

    `num_splits` programs share the sequence.
    """

    seq_id: str
    layer: int
    head: int
    num_splits: int = 1


@dataclass(frozen=True)
class Launch(Probe):
    """The tensors that the step's launch was given: seq_lens and query_start_loc, and block_tables and slot_mapping of
    each group of layers."""


@dataclass(frozen=True)
class FlashAndPaged(Probe):
    """The decode kernel over a sequence's blocks, and over the same K and V side by side in tiles of `tile` tokens."""

    seq_id: str
    layer: int
    head: int
    tile: int


@dataclass(frozen=True)
class LazyRescale(Probe):
    """How often the online softmax scales down its sums for a sequence's newest token, and how often it need not.

    The scores are multiplied by `sharpness`; a rescale is skipped while the maximum grows by at most `threshold` powers
    of 2, and 0 skips none.
    """

    seq_id: str
    layer: int
    head: int
    sharpness: int
    threshold: int


@dataclass(frozen=True)
class BlockSizes(Probe):
    """The run so far under other block sizes, the pool as many slots as before: what is wasted, named, copied, hit.

    It is counted at the end of the operation that the state lies in, as blocks of another size take other steps.
    `pair` are two sequences whose leading full blocks of equal tokens are counted.
    """

    sizes: tuple[int, ...]
    pair: tuple[str, str]


@dataclass(frozen=True)
class Bandwidth(Probe):
    """How fast this machine's GPU, if it has one, reads K and V by block size."""


# How a preempted request comes to its tokens again: the policy, and whether full blocks keep a hash.
PREEMPTIONS = {
    "swap": ("swap", False),
    "recompute": ("recompute", False),
    "recompute, prefix caching": ("recompute", True),
}


@dataclass(frozen=True)
class SwapOrRecompute(Probe):
    """The run so far, played with each of `preemptions` at each block size, the pool and the host of as many slots as
    before: what is copied, computed again and hit. Counted at the end of the operation that the state lies in."""

    sizes: tuple[int, ...]
    preemptions: tuple[str, ...] = tuple(PREEMPTIONS)


@dataclass(frozen=True)
class WaysBack(Probe):
    """How long this machine's GPU, if it has one, takes to swap a sequence out and in, and to compute it again."""


@dataclass(frozen=True)
class Radix(Probe):
    """The radix tree after the same operations, in pages of `page_size`, and what each prompt hit in both."""

    follows: ClassVar[bool] = True

    page_size: int


@dataclass(frozen=True)
class Orders(Probe):
    """Tokens hit by each order of the waiting: in blocks, and by the tree in pages of that size and of `page_size`.

    `waiting` names prompts of the run as they arrived. All wait before the first of them is added, and each is finished
    before the next one is chosen.
    """

    waiting: tuple[str, ...]
    page_size: int


@dataclass(frozen=True)
class UnchainedHit(Probe):
    """What a sequence would get if a full block were found by its own tokens alone, whatever stands before them.

    The block is `other`'s at the same place, `logical_block`, with the same tokens behind other ones.
    """

    seq_id: str
    other: str
    logical_block: int


class Way(NamedTuple):
    """How else a run could be served: by these policies, each named by its function, in place of the profile's own of
    that kind. `budget` is a step's token budget, 0 for the cache's own."""

    policies: tuple[str, ...]
    budget: int = 0


@dataclass(frozen=True)
class Timetable(Probe):
    """Step by step, who computes how many tokens: of the run so far, and of its requests served to the end in other
    ways. The other runs do what the run did, step for step, and then go on until nobody waits or runs.

    With `seats`, those of `max_num_seqs` are counted in which nobody computes.
    """

    ways: tuple[Way, ...] = ()
    seats: bool = False


@dataclass(frozen=True)
class Chunks(Probe):
    """What it costs a `request`, and all others, to compute its prompt in each of several ways."""

    request: str
    ways: tuple[Way, ...]
