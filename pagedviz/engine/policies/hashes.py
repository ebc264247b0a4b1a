"""When full blocks get their hashes, and what happens when another cached block holds the same tokens."""

from collections.abc import Callable
from typing import Literal, NamedTuple

WritePhase = Literal["scheduled", "written"]
Publish = Callable[[WritePhase], bool]


def when_scheduled(phase: WritePhase) -> bool:
    """Before the launch that fills them. A later sequence of the same step may then name a block that is being filled.

    Sound only because the launch stores every K and V of a layer before anybody attends in it. Source: vLLM V1.
    """
    return phase == "scheduled"


def when_written(phase: WritePhase) -> bool:
    """After the launch that has filled them. Source: nano-vllm, and vLLM V0, which marks blocks as computed."""
    return phase == "written"


class Duplicate(NamedTuple):
    """`entry` is the block that the table names from now on, `findable` those that the map names."""

    entry: int
    findable: tuple[int, ...]


Duplicates = Callable[[int, int], Duplicate]


def kept(cached: int, filled: int) -> Duplicate:
    """Both stay, and the older is hit. No table entry ever changes. Source: vLLM V1."""
    return Duplicate(filled, (cached, filled))


def collapsed(cached: int, filled: int) -> Duplicate:
    """The table names the cached block, and the filled one is free again. Source: vLLM V0's promotion."""
    return Duplicate(cached, (cached,))


def last_writer(cached: int, filled: int) -> Duplicate:
    """The map names the block that was filled last; the older one can be hit no more. Source: nano-vllm."""
    return Duplicate(filled, (filled,))
