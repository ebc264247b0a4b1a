"""Where engines differ. A policy is one function; a profile is one choice of each, under a real engine's name."""

from collections.abc import Callable
from dataclasses import dataclass

FreeOrder = Callable[[int, int], int]


def head_of_queue(run_index: int, queue_length: int) -> int:
    """Blocks freed together go before the head of the free queue as one run, in the order in which they were freed.

    Example: a table [1, 2, 3] is freed from its tail, so 3, 2, 1 take places 0, 1, 2 and 3 goes out next.
    Source: vLLM V0's naive allocator (last in, first out) and V1's `free_blocks` for blocks without a hash.
    """
    return run_index


@dataclass(frozen=True)
class Profile:
    """One real engine's choices.

    `null_block`: block 0 is never handed out, and pads the tables. `fork`: sequences may share a partly filled block,
    which makes copy-on-write possible. `free_order`: (how many of this run are freed already, queue length) -> place.
    """

    name: str
    null_block: bool
    fork: bool
    free_order: FreeOrder


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("vllm-v0", null_block=False, fork=True, free_order=head_of_queue),
        Profile("vllm-v1", null_block=True, fork=False, free_order=head_of_queue),
    )
}
