"""Questions that only the tensors can answer, each about one state of a run. The compute process answers them.

A probe is data. The file of the same name in a folder of `pagedviz/runtime/probes/` answers it, with plain JSON or with
{"refused": one sentence}.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from pagedviz.engine.log.events.base import frozen

Answer = Mapping[str, Any]
NOT_FINITE = "A number that the kernel gave is not finite, so it is wrong, and nothing is shown of it."


class Refused(Exception):
    """A probe cannot be answered at this state of the run; the message is one sentence that says why."""


def whole_number(name: str, value: Any, low: int, high: int) -> None:
    """Raise Refused unless the value is a whole number from `low` to `high`."""
    if type(value) is not int or not low <= value <= high:
        raise Refused(f"{name} is {value!r}; here it may be {low} to {high}.")


@dataclass(frozen=True)
class Probe:
    """A question. `Probe.kinds` has every kind by its name.

    A page asks its probe about the page's own state or, if the probe `follows`, about every state that the stage shows.
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
    """What the decode kernel did for the newest token of a sequence, turn by turn, as the kernel reports it.

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
    """The decode kernel over a sequence's blocks, and over the same K and V, contiguous, in tiles of `tile` tokens."""

    seq_id: str
    layer: int
    head: int
    tile: int


@dataclass(frozen=True)
class LazyRescale(Probe):
    """How often the online softmax scales down its sums for a sequence's newest token, and how often it can skip that.

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
    """The run so far under other block sizes, in a pool of as many slots: slots wasted, table entries, copies, hits.

    It is counted at the end of the operation in which the state lies, as blocks of another size take other steps.
    `pair` are two sequences whose leading full blocks of equal tokens are counted.
    """

    sizes: tuple[int, ...]
    pair: tuple[str, str]


@dataclass(frozen=True)
class Bandwidth(Probe):
    """How fast this machine's GPU, if it has one, reads K and V by block size."""


# How a preempted request gets its K and V back: the policy, and whether full blocks keep a hash.
PREEMPTIONS = {
    "swap": ("swap", False),
    "recompute": ("recompute", False),
    "recompute, prefix caching": ("recompute", True),
}


@dataclass(frozen=True)
class SwapOrRecompute(Probe):
    """The run so far, played with each of `preemptions` at each block size, with as many slots on device and host: what
    is copied, computed again and hit. It is counted at the end of the operation in which the state lies."""

    sizes: tuple[int, ...]
    preemptions: tuple[str, ...] = tuple(PREEMPTIONS)


@dataclass(frozen=True)
class PreemptionCost(Probe):
    """How long this machine's GPU, if it has one, takes to swap a sequence out and in, and to compute it again."""


@dataclass(frozen=True)
class Radix(Probe):
    """The radix tree after the same operations, in pages of `page_size`, and how much each prompt hit in both
    caches."""

    follows: ClassVar[bool] = True

    page_size: int


@dataclass(frozen=True)
class Orders(Probe):
    """Tokens that each order of the waiting requests hits: in blocks, and in the tree's pages of two sizes, the block's
    and `page_size`.

    `waiting` names prompts of the run in the order of their arrival. All of them wait before the first one is added,
    and each is finished before the next one is chosen.
    """

    waiting: tuple[str, ...]
    page_size: int


@dataclass(frozen=True)
class UnchainedHit(Probe):
    """What a sequence would get if the hash of a full block covered its own tokens only, without their prefix.

    The block is `logical_block` of `other`: the same tokens at the same place, after a different prefix.
    """

    seq_id: str
    other: str
    logical_block: int


class Way(NamedTuple):
    """Another way to serve a run: with these policies, named by their functions, each instead of the profile's policy
    of its kind. `budget` is a step's token budget, 0 for the cache's own."""

    policies: tuple[str, ...]
    budget: int = 0


@dataclass(frozen=True)
class Timetable(Probe):
    """Step by step, how many tokens each request computes: in the run so far, and with its requests served to the end
    in other ways. The other runs repeat the operations of the run, and then go on until no request waits or runs.

    With `seats`, the idle places among the batch's `max_num_seqs` are counted.
    """

    ways: tuple[Way, ...] = ()
    seats: bool = False


@dataclass(frozen=True)
class Chunks(Probe):
    """The cost of computing a request's prompt in each of several ways: for `request` itself, and for all others."""

    request: str
    ways: tuple[Way, ...]
