"""Which request is preempted when no block is free, and what happens to its blocks. Each is one function."""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeVar


class Running(Protocol):
    """What a choice looks at: a request that runs."""

    priority: int
    arrival: int
    prompt: tuple[str | int, ...]

    @property
    def output(self) -> Sequence[str | int]: ...


R = TypeVar("R", bound=Running)


class Victim(Protocol):
    """Chooses one of the running requests, which come in the order in which they were admitted."""

    def __call__(self, running: Sequence[R], /) -> R: ...


def last_admitted(running: Sequence[R]) -> R:
    """The last of those who run; it may be the one that needs the block. Source: vLLM, nano-vllm."""
    return running[-1]


def least_urgent(running: Sequence[R]) -> R:
    """The largest priority number, and of equal ones who came last. Source: vLLM V1 with priorities."""
    return max(running, key=lambda request: (request.priority, request.arrival))


def fewest_outputs(running: Sequence[R]) -> R:
    """Who has generated least, so that least is lost; of equals the longer prompt, and of those the last admitted.

    Source: SGLang's retraction.
    """
    return min(reversed(running), key=lambda request: (len(request.output), -len(request.prompt)))


How = Literal["recompute", "swap"]
Preemption = Callable[[int, int], tuple[How, str]]  # (blocks that would move, free host blocks) -> how, and why if not


def recompute(blocks: int, host_free: int) -> tuple[How, str]:
    """Its blocks are freed, and its tokens computed again. Source: vLLM V1 does nothing else."""
    return "recompute", ""


def swap(blocks: int, host_free: int) -> tuple[How, str]:
    """All of its blocks move to the host, or none: recompute where they do not fit. Source: the paper, vLLM V0."""
    if not blocks:
        return "recompute", "others name all of its blocks"
    if blocks > host_free:
        return "recompute", f"{blocks} blocks would move, and {host_free} host blocks are free"
    return "swap", ""
