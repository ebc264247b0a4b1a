"""How many tokens of a prompt a step computes when the whole prompt is larger than the budget that is left."""

from collections.abc import Callable

Chunking = Callable[[int, int, bool], int]  # (tokens to compute, budget left, first of the step) -> tokens, 0 = wait


def split(left: int, budget: int, first: bool) -> int:
    """As many as fit. Later steps compute the rest. Source: Sarathi-Serve, vLLM V1."""
    return min(left, budget)


def split_first_only(left: int, budget: int, first: bool) -> int:
    """Only the first prompt of a step is split. Another waits until the whole of it fits. Source: nano-vllm."""
    return min(left, budget) if first or left <= budget else 0


def never_split(left: int, budget: int, first: bool) -> int:
    """A prompt is computed in one step, or waits. Source: vLLM V0 by default."""
    return left if left <= budget else 0
