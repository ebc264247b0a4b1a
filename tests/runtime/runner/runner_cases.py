"""Runs small enough for the interpreter, and what is left of them."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor

import kernels
from pagedviz.engine.log.events.base import Token
from pagedviz.probe import Probe
from pagedviz.run.play import Happening
from pagedviz.run.trace import Check
from pagedviz.runtime import probes
from pagedviz.runtime.computing import decode_graph
from pagedviz.runtime.running.runner import Runner
from pagedviz.scenario.operations import Add, Append, Op
from pagedviz.scenario.settings import CacheConfig

TINY = CacheConfig(num_blocks=8, block_size=2, host_blocks=4, head_dim=4, scatter=True)


def one_by_one(seq_id: str, tokens: Iterable[Token]) -> tuple[Op, ...]:
    """The same tokens as a prompt of them all, each given by itself."""
    first, *rest = tokens
    return Add(seq_id, (first,)), *(Append(seq_id, (token,)) for token in rest)


def on_attention(monkeypatch: pytest.MonkeyPatch, instead: Callable[..., Tensor]) -> None:
    """Both kernels of attention become `instead(attend, q, k_cache, v_cache, block_tables, seq_lens)`; `attend` is the
    real one, called with the same arguments."""

    def put(name: str) -> None:
        real = getattr(kernels, name)

        def attention(q, k_cache, v_cache, block_tables, seq_lens, *more, **options):
            return instead(lambda *five: real(*five, *more, **options), q, k_cache, v_cache, block_tables, seq_lens)

        monkeypatch.setattr(kernels, name, attention)

    # What is done in Python would be done once, while a graph is captured.
    monkeypatch.setattr(decode_graph, "MOST_GRAPHS", 0)
    put("paged_decode")
    put("paged_prefill")


def ask(runner: Runner, asked: Probe, index: int) -> dict[str, Any]:
    """A probe's answer at the state after `index` happenings."""
    return probes.answer(asked, runner.recording.at(index))


class Played:
    """A runner and every happening that it yielded, with its check."""

    def __init__(self, *ops: Op, cache: CacheConfig = TINY, seed: int = 0) -> None:
        self.runner = Runner(cache, seed)
        self.start = self.runner.check_start()
        self.steps: list[tuple[Happening, Check]] = []
        self.play(*ops)

    def play(self, *ops: Op) -> "Played":
        for op in ops:
            self.steps += self.runner.perform(op)
        return self

    @property
    def checks(self) -> list[Check]:
        return [check for _, check in self.steps]

    @property
    def last(self) -> Check:
        return self.checks[-1]

    @property
    def state(self):
        return self.steps[-1][0].snapshot

    @property
    def first_failure(self) -> tuple[str, Check] | None:
        """The kind of the first event whose verdict is not good, and that verdict."""
        return next(((happening.event.kind, check) for happening, check in self.steps if not check.ok), None)

    def kv(self, seq_id: str) -> tuple[Tensor, Tensor]:
        """K and V through the table, [num_layers, seq_len, num_kv_heads, head_dim]."""
        return self.runner.kv.read(self.state, seq_id)

    def logged(self, seq_id: str) -> list[Tensor]:
        """All that the plain log holds of a sequence."""
        return [torch.stack(row) for row in self.runner.log.sequences[seq_id].rows()]


def same_bits(one: Iterable[Tensor], other: Iterable[Tensor]) -> bool:
    """Equal memory: a NaN equals itself, and 0.0 is not -0.0."""
    return all(
        a.shape == b.shape and torch.equal(a.contiguous().view(torch.int32), b.contiguous().view(torch.int32))
        for a, b in zip(one, other, strict=True)
    )
