"""Probes are questions about one state of a run that only its tensors can answer. The compute process answers them.

A probe is data. A function of the same name in `pagedviz/runtime/probes/` answers it, with plain JSON or with
{"refused": one sentence}.
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
    """A question to the tensors. `Probe.kinds` has every kind by its name.

    A page's probe is about the page's own state. If it `follows`, it is about each state that the stage shows.
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
    """The decode kernel over a sequence's blocks, and over the same K and V side by side in tiles of `tile` tokens."""

    seq_id: str
    layer: int
    head: int
    tile: int


@dataclass(frozen=True)
class LazyRescale(Probe):
    """How often the online softmax rescales its sums for a sequence's newest token, and how often it can skip that.

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
    """The run so far with other block sizes and the same number of slots: how many are wasted, named, copied and hit.

    It is counted at the end of the state's operation, because other block sizes take other steps.
    `pair` are two sequences whose leading full blocks of equal tokens are counted.
    """

    sizes: tuple[int, ...]
    pair: tuple[str, str]


@dataclass(frozen=True)
class Bandwidth(Probe):
    """How fast this machine's GPU, if it has one, reads K and V by block size."""


# How a preempted request gets its tokens back: the policy, and whether full blocks keep a hash.
PREEMPTIONS = {
    "swap": ("swap", False),
    "recompute": ("recompute", False),
    "recompute, prefix caching": ("recompute", True),
}


@dataclass(frozen=True)
class SwapOrRecompute(Probe):
    """The run so far with each of `preemptions` at each block size, with the same numbers of slots on device and host:
    how many tokens are copied, computed again and hit. It is counted at the end of the state's operation."""

    sizes: tuple[int, ...]
    preemptions: tuple[str, ...] = tuple(PREEMPTIONS)


@dataclass(frozen=True)
class WaysBack(Probe):
    """How long this machine's GPU, if it has one, takes to swap a sequence out and in, and to compute it again."""


@dataclass(frozen=True)
class Radix(Probe):
    """The radix tree after the same operations, in pages of `page_size`, and how much each prompt hit in both
    caches."""

    follows: ClassVar[bool] = True

    page_size: int


@dataclass(frozen=True)
class Orders(Probe):
    """Tokens hit by each order of the waiting requests: in blocks, and in the tree with pages of that size and of
    `page_size`.

    `waiting` names prompts of the run, in the order in which they arrived. All of them wait before the first is added.
    Each is finished before the next is chosen.
    """

    waiting: tuple[str, ...]
    page_size: int


@dataclass(frozen=True)
class UnchainedHit(Probe):
    """The block that a sequence would get if a full block were found by its own tokens, without those before them.

    It is the block of `other` at the same `logical_block`: it holds the same tokens, but behind different ones.
    """

    seq_id: str
    other: str
    logical_block: int


class Way(NamedTuple):
    """Another way to serve a run: with these policies, each named by its function, in place of the profile's own.
    `budget` is a step's token budget; 0 is the cache's own."""

    policies: tuple[str, ...]
    budget: int = 0


@dataclass(frozen=True)
class Timetable(Probe):
    """Which requests compute how many tokens in each step: in the run so far, and with its requests served to the end
    in other ways. The other runs repeat the run step by step, and then continue until no request waits or runs.

    With `seats`, the empty ones of `max_num_seqs` are counted.
    """

    ways: tuple[Way, ...] = ()
    seats: bool = False


@dataclass(frozen=True)
class Chunks(Probe):
    """The cost of each of several ways to compute a `request`'s prompt, for it and for all others."""

    request: str
    ways: tuple[Way, ...]
