"""When full blocks get their hashes, and what happens when another cached block holds the same tokens."""

from collections.abc import Callable
from typing import Literal, NamedTuple

WritePhase = Literal["scheduled", "written"]
Publish = Callable[[WritePhase], bool]


def when_scheduled(phase: WritePhase) -> bool:
    """Before the launch that fills them. So another sequence of the same step may name a block that is being filled.

    This is correct only because the launch stores all K and V of a layer before any token attends in that layer.
    Source: vLLM V1.
    """
    return phase == "scheduled"


def when_written(phase: WritePhase) -> bool:
    """After the launch that fills them. Source: nano-vllm, and vLLM V0, which marks blocks as computed."""
    return phase == "written"


class Duplicate(NamedTuple):
    """`entry` is the block that the table names from now on. `findable` are the blocks that the hash map names."""

    entry: int
    findable: tuple[int, ...]


Duplicates = Callable[[int, int], Duplicate]


def kept(cached: int, filled: int) -> Duplicate:
    """Both blocks stay, and later prompts hit the older one. No table entry ever changes. Source: vLLM V1."""
    return Duplicate(filled, (cached, filled))


def collapsed(cached: int, filled: int) -> Duplicate:
    """The table names the cached block, and the filled block is freed. Source: vLLM V0's promotion."""
    return Duplicate(cached, (cached,))


def last_writer(cached: int, filled: int) -> Duplicate:
    """The map names the block that was filled last. The older one can no longer be hit. Source: nano-vllm."""
    return Duplicate(filled, (filled,))
