"""May the next waiting request be admitted? An admission is one function; so is how much of a prompt gets blocks."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AdmissionInput:
    """What an admission decides on. All numbers count blocks of the device pool.

    `now` blocks leave the free queue for the tokens of this step, `prompt` blocks for the whole prompt. A cached block
    that lies in the free queue leaves it too, so it is counted. `free` of `total` blocks are free, and `watermark` of
    them should stay free. `alone`: no other request runs. `expected_outputs`: blocks that the outputs of the running
    requests and of this one will probably take.
    """

    now: int
    prompt: int
    free: int
    total: int
    watermark: int
    alone: bool
    expected_outputs: int


Admission = Callable[[AdmissionInput], str]  # why the request has to wait, or "" when it is admitted


def whole_prompt_fits(given: AdmissionInput) -> str:
    """The whole prompt must fit, although only its first chunk is computed. A request alone needs no watermark.

    Source: vLLM V1's `full_sequence_must_fit` and watermark.
    """
    watermark = 0 if given.alone else given.watermark
    return _short_of(given.prompt, watermark, given.free)


def first_chunk_fits(given: AdmissionInput) -> str:
    """Only the tokens of this step must fit. So a long prompt may be admitted and preempted before all is computed.

    Source: vLLM V1 without the gate.
    """
    return _short_of(given.now, 0 if given.alone else given.watermark, given.free)


def above_watermark(given: AdmissionInput) -> str:
    """The whole prompt must fit, and the watermark always stays free. Source: vLLM V0's `can_allocate`."""
    return _short_of(given.prompt, given.watermark, given.free)


def outputs_reserved(given: AdmissionInput) -> str:
    """The whole prompt must fit beside its own outputs and those expected of the running requests. Source: SGLang."""
    return _short_of(given.prompt, 0 if given.alone else given.expected_outputs, given.free)


def _short_of(needed: int, kept: int, free: int) -> str:
    if needed + kept <= free:
        return ""
    of_these = f", of which {kept} should stay free" if kept else ""
    return f"it needs {needed} free block{'' if needed == 1 else 's'}, and the pool has {free}{of_these}"


def can_ever(admission: Admission, needed: int, total: int, watermark: int) -> bool:
    """Whether a request that takes `needed` blocks would be admitted to an empty pool."""
    return not admission(AdmissionInput(needed, needed, total, total, watermark, alone=True, expected_outputs=0))


PromptBlocks = Callable[[int, int], int]  # (tokens computed in this step, tokens of the prompt) -> tokens with slots


def blocks_when_scheduled(until: int, prompt: int) -> int:
    """Blocks are taken in the step that fills them. Source: vLLM V1, SGLang."""
    return until


def blocks_for_prompt(until: int, prompt: int) -> int:
    """Blocks for the whole prompt are taken at once, however little of it this step computes.

    Source: vLLM V0, nano-vllm.
    """
    return prompt
