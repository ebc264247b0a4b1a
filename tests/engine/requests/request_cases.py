"""A scheduler that is watched, and a model of K and V in which every value depends on all tokens before it."""

import dataclasses
import hashlib
from collections.abc import Callable

from pagedviz.engine.log import invariants
from pagedviz.engine.log.events.base import Event, Token
from pagedviz.engine.manager.block_manager import BlockManager
from pagedviz.engine.policies.limits import Limits, Speculation
from pagedviz.engine.policies.profiles import PROFILES, policy
from pagedviz.engine.requests import outputs
from pagedviz.engine.requests.scheduler import Scheduler

NO_DRAFTS = Speculation()
WIDE = Limits(max_num_batched_tokens=1_000)


class WatchedScheduler(Scheduler):
    """The real scheduler on the real manager; each event is checked against every invariant at once."""

    def __init__(
        self,
        num_blocks: int,
        *,
        block_size: int = 4,
        host_blocks: int = 0,
        profile: str = "vllm-v1",
        prefix_caching: bool = True,
        auto_spill: bool = False,
        fork: bool = False,
        limits: Limits = WIDE,
        windows: tuple[int | None, ...] = (None,),
        host_chunks: int = 0,
        speculation: Speculation = NO_DRAFTS,
        **policies: str,
    ) -> None:
        chosen = PROFILES[profile]
        others = {kind: policy(kind, name) for kind, name in policies.items()}
        manager = BlockManager(
            block_size=block_size,
            num_blocks=num_blocks,
            free_blocks=range(chosen.null_block, num_blocks),
            host_blocks=host_blocks,
            profile=dataclasses.replace(chosen, fork=chosen.fork or fork, **others),
            auto_spill=auto_spill,
            report=self._watch,
            prefix_caching=prefix_caching,
            windows=windows,
            host_chunks=host_chunks,
        )
        super().__init__(manager, limits, self._watch, speculation)
        self.events: list[Event] = []
        self._before = self.snapshot()

    def _watch(self, event: Event) -> None:
        after = self.snapshot()
        assert invariants.broken(self._before, event, after) == []
        self.events.append(event)
        self._before = after

    def step(self, sample: Callable[[str], Token] = lambda seq_id: "t") -> dict[str, int]:
        """One whole step; returns how many tokens were scheduled, by sequence."""
        self.manager.engine_step += 1
        self.schedule()
        scheduled = dict(self.scheduled)
        self.write()
        outputs.fork(self)
        outputs.sampled(self, {seq_id: (sample(seq_id),) for seq_id in outputs.due(self)})
        return scheduled

    @property
    def table(self) -> dict[str, list[int | None]]:
        return {seq_id: list(row) for seq_id, row in self.snapshot().block_tables.items()}

    @property
    def free_blocks(self) -> list[int]:
        return list(self.manager.pool.free_blocks)


def value(before: bytes, token: Token) -> bytes:
    """What a token's slot holds in this model: it depends on what the slot before it holds."""
    return hashlib.sha256(before + repr(token).encode()).digest()[:8]


def values(tokens: list[Token]) -> list[bytes]:
    """What the slots of a sequence must hold."""
    held, row = b"", []
    for token in tokens:
        held = value(held, token)
        row.append(held)
    return row


def next_token(last: bytes) -> str:
    """The model's greedy choice after a slot's value: one of three letters."""
    return "abc"[last[0] % 3]


def generated(prompt: list[Token], num_tokens: int) -> list[Token]:
    """The outputs of a request that is served alone."""
    tokens = list(prompt)
    for _ in range(num_tokens):
        tokens.append(next_token(values(tokens)[-1]))
    return tokens[len(prompt) :]
