"""May the next waiting request be admitted? An admission is one function; so is how much of a prompt gets blocks."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Asked:
    """What an admission decides on, in blocks of the device pool.

    `now` leave the free queue for what is computed in this step, `prompt` for the whole prompt; cached blocks that lie
    in the queue are counted, for they leave it too. `free` of `total` are free. `watermark` should stay free.
    `alone`: nobody else runs. `expected_outputs`: blocks that those who run are likely to take yet, and itself.
    """

    now: int
    prompt: int
    free: int
    total: int
    watermark: int
    alone: bool
    expected_outputs: int


Admission = Callable[[Asked], str]  # why it has to wait, or "" when it may come


def whole_prompt_fits(asked: Asked) -> str:
    """The whole prompt must fit although only its first chunk is computed; the watermark is waived for who is alone.

    Source: vLLM V1's `full_sequence_must_fit` and watermark.
    """
    watermark = 0 if asked.alone else asked.watermark
    return _short_of(asked.prompt, watermark, asked.free)


def first_chunk_fits(asked: Asked) -> str:
    """Only what this step computes must fit, so a long prompt may come in and be preempted on its way.

    Source: vLLM V1 without the gate.
    """
    return _short_of(asked.now, 0 if asked.alone else asked.watermark, asked.free)


def above_watermark(asked: Asked) -> str:
    """The whole prompt must fit, and the watermark stays free whoever else runs. Source: vLLM V0's `can_allocate`."""
    return _short_of(asked.prompt, asked.watermark, asked.free)


def outputs_reserved(asked: Asked) -> str:
    """The whole prompt must fit beside what it may generate and those who run are expected to. Source: SGLang."""
    return _short_of(asked.prompt, 0 if asked.alone else asked.expected_outputs, asked.free)


def _short_of(needed: int, kept: int, free: int) -> str:
    if needed + kept <= free:
        return ""
    beside = f", and {kept} should stay in it" if kept else ""
    return f"it takes {needed} out of the free queue, which has {free}{beside}"


def can_ever(admission: Admission, needed: int, total: int, watermark: int) -> bool:
    """Would a request that takes `needed` blocks be admitted to an empty pool?"""
    return not admission(Asked(needed, needed, total, total, watermark, alone=True, expected_outputs=0))


PromptBlocks = Callable[[int, int], int]  # (tokens computed in this step, tokens of the prompt) -> tokens with slots


def blocks_when_scheduled(until: int, prompt: int) -> int:
    """Blocks come with the step that fills them. Source: vLLM V1, SGLang."""
    return until


def blocks_for_prompt(until: int, prompt: int) -> int:
    """Blocks for the whole prompt at once, whatever this step computes of it. Source: vLLM V0, nano-vllm."""
    return prompt
