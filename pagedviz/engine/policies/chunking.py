"""How much of a prompt a step computes, when the whole of it is more than is left of the budget."""

from collections.abc import Callable

Chunking = Callable[[int, int, bool], int]  # (tokens to compute, budget left, first of the step) -> tokens, 0 = wait


def split(left: int, budget: int, first: bool) -> int:
    """As much as fits: the rest comes in later steps. Source: Sarathi-Serve, vLLM V1."""
    return min(left, budget)


def split_first_only(left: int, budget: int, first: bool) -> int:
    """Only the first prompt of a step is split; another waits until it fits whole. Source: nano-vllm."""
    return min(left, budget) if first or left <= budget else 0


def never_split(left: int, budget: int, first: bool) -> int:
    """A prompt is computed at once, or waits. Source: vLLM V0 by default."""
    return left if left <= budget else 0
