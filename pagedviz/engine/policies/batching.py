"""What a step serves first: running requests or waiting ones. A batching is one function of the scheduler's step."""

from collections.abc import Callable
from typing import Protocol


class Step(Protocol):
    """What a batching may ask the scheduler to do in this step."""

    @property
    def is_empty(self) -> bool:
        """No sequence is scheduled yet."""

    @property
    def has_running(self) -> bool: ...

    def continue_prefills(self) -> None:
        """Schedule the running requests that have not computed their prompts yet."""

    def continue_running(self) -> None:
        """Schedule all running requests, in order. One that finds no free block preempts a request."""

    def swap_in(self) -> None:
        """Bring swapped requests back, in order, as far as there is room."""

    def admit(self) -> None:
        """Admit waiting requests, in order, up to the first that does not fit."""


Batching = Callable[[Step], None]


def running_first(step: Step) -> None:
    """Decodes and prompts share one launch: first the running requests, then the waiting ones.

    Source: vLLM V1 (Orca's iterations).
    """
    step.continue_running()
    step.swap_in()
    step.admit()


def prefill_first(step: Step) -> None:
    """A step computes prompts only, as long as one fits; otherwise decodes only. Source: vLLM V0, nano-vllm, SGLang."""
    step.continue_prefills()
    step.admit()
    if step.is_empty:
        step.continue_running()
        step.swap_in()


def static_batches(step: Step) -> None:
    """A batch is admitted; no other request comes before the whole batch has finished. Source: servers before Orca."""
    if not step.has_running:
        step.swap_in()
        step.admit()
    step.continue_running()
