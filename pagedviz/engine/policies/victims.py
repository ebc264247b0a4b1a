"""Which request is preempted when no block is free, and what happens to its blocks. Each choice is one function."""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeVar


class Running(Protocol):
    """What a choice reads of a running request."""

    priority: int
    arrival: int
    prompt: tuple[str | int, ...]

    @property
    def output(self) -> Sequence[str | int]: ...


R = TypeVar("R", bound=Running)


class Victim(Protocol):
    """Chooses one of the running requests. They are listed in the order in which they were admitted."""

    def __call__(self, running: Sequence[R], /) -> R: ...


def last_admitted(running: Sequence[R]) -> R:
    """The request that was admitted last. It may be the one that needs the block. Source: vLLM, nano-vllm."""
    return running[-1]


def least_urgent(running: Sequence[R]) -> R:
    """The request with the largest priority number; of equal ones, the one that came last.

    Source: vLLM V1 with priorities.
    """
    return max(running, key=lambda request: (request.priority, request.arrival))


def fewest_outputs(running: Sequence[R]) -> R:
    """The request with the fewest outputs, because they are computed again.

    Of equal ones it is the one with the longest prompt; of those, the one admitted last.

    Source: SGLang's retraction.
    """
    return min(reversed(running), key=lambda request: (len(request.output), -len(request.prompt)))


How = Literal["recompute", "swap"]
Preemption = Callable[[int, int], tuple[How, str]]  # (blocks that would move, free host blocks) -> how, and why if not


def recompute(blocks: int, host_free: int) -> tuple[How, str]:
    """Its blocks are freed, and its tokens are computed again later. Source: vLLM V1 does nothing else."""
    return "recompute", ""


def swap(blocks: int, host_free: int) -> tuple[How, str]:
    """All of its blocks move to the host. If they do not fit there, they are freed and computed again.

    Source: the paper, vLLM V0.
    """
    if not blocks:
        return "recompute", "other sequences name all of its blocks, so none can move"
    if blocks > host_free:
        return "recompute", f"a swap needs {blocks} host blocks, and {host_free} are free"
    return "swap", ""
