"""The shape of a step: who is asked first for its tokens. A batching is one function of a scheduler's step."""

from collections.abc import Callable
from typing import Protocol


class Step(Protocol):
    """What a batching may ask the scheduler to do in this step."""

    @property
    def is_empty(self) -> bool:
        """Nobody is scheduled yet."""

    @property
    def anybody_runs(self) -> bool: ...

    def continue_prefills(self) -> None:
        """Who runs and has not computed all of its prompt goes on."""

    def continue_running(self) -> None:
        """Whoever runs goes on, in order; who finds no block preempts somebody."""

    def swap_in(self) -> None:
        """Who was swapped out comes back, in order, as far as there is room."""

    def admit(self) -> None:
        """Who waits comes in, in order, up to the first that does not fit."""


Batching = Callable[[Step], None]


def running_first(step: Step) -> None:
    """Decodes and prompts in one launch: whoever runs first, then who waits. Source: vLLM V1 (Orca's iterations)."""
    step.continue_running()
    step.swap_in()
    step.admit()


def prefill_first(step: Step) -> None:
    """A step is prompts only, as long as any fits; else it is decodes only. Source: vLLM V0, nano-vllm, SGLang."""
    step.continue_prefills()
    step.admit()
    if step.is_empty:
        step.continue_running()
        step.swap_in()


def static_batches(step: Step) -> None:
    """A batch is admitted, and nobody else comes until all of it has finished: how it was done before Orca."""
    if not step.anybody_runs:
        step.swap_in()
        step.admit()
    step.continue_running()
