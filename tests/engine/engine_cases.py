"""A block manager that is watched: each event it reports is checked against every invariant at once."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator

import pytest

from pagedviz.engine.log import invariants
from pagedviz.engine.log.errors import CacheError
from pagedviz.engine.log.events.base import Event
from pagedviz.engine.manager.block_manager import BlockManager
from pagedviz.engine.policies.profiles import PROFILES, policy

# The scenario that the project's first issue gives.
EXAMPLE = """{"pagedviz": 1, "seed": 0, "cache": {"num_blocks": 12, "block_size": 4, "host_blocks": 6, "num_layers": 2,
 "num_heads": 2, "num_kv_heads": 1, "head_dim": 8, "profile": "vllm-v0", "prefix_caching": false, "scatter": true,
 "auto_spill": false}, "ops": [{"add": "A", "text": "Four score and seven years ago our"},
 {"append": "A", "text": "fathers"}, {"fork": "A", "as": "B"}, {"append": "B", "tokens": [7, 7]},
 {"generate": "A", "tokens": 2}, {"spill": "A"}, {"reload": "A"}, {"free": "B"}]}"""


class Watched(BlockManager):
    """The real manager; `events` is all that it has reported."""

    def __init__(
        self,
        num_blocks: int = 8,
        *,
        block_size: int = 4,
        host_blocks: int = 4,
        profile: str = "vllm-v0",
        fork: bool = False,
        auto_spill: bool = False,
        free_blocks: Iterable[int] | None = None,
        prefix_caching: bool = False,
        windows: Iterable[int | None] = (None,),
        host_chunks: int = 0,
        **policies: str,
    ) -> None:
        chosen = PROFILES[profile]
        others = {kind: policy(kind, name) for kind, name in policies.items()}
        super().__init__(
            block_size=block_size,
            num_blocks=num_blocks,
            free_blocks=range(chosen.null_block, num_blocks) if free_blocks is None else free_blocks,
            host_blocks=host_blocks,
            profile=dataclasses.replace(chosen, fork=chosen.fork or fork, **others),
            auto_spill=auto_spill,
            report=self._watch,
            prefix_caching=prefix_caching,
            windows=tuple(windows),
            host_chunks=host_chunks,
        )
        self.auto_spill = auto_spill
        self.events: list[Event] = []
        self.watchers: list[Callable[[Event], object]] = []
        self._before = self.snapshot()

    def _watch(self, event: Event) -> None:
        after = self.snapshot()
        assert invariants.broken(self._before, event, after) == []
        for seq in self.sequences.values():
            assert seq.num_on_host == len(seq.host_blocks)
            known = seq.seq_len + len(seq.awaited) + len(seq.scheduled)
            assert len(seq.links) <= known // self.block_size
        self.events.append(event)
        self._before = after
        for watch in self.watchers:
            watch(event)

    def kinds_since(self, number: int) -> list[str]:
        """What has been reported after the first `number` events."""
        return [event.kind for event in self.events[number:]]

    @property
    def table(self) -> dict[str, list[int | None]]:
        return {seq_id: list(row) for seq_id, row in self.snapshot().block_tables.items()}

    @property
    def host_table(self) -> dict[str, list[int | None]]:
        return {seq_id: list(row) for seq_id, row in self.snapshot().host_tables.items()}

    @property
    def ref_counts(self) -> dict[int, int]:
        return dict(self.snapshot().ref_counts)

    @property
    def cached(self) -> set[int]:
        return set(self.snapshot().cached)

    @property
    def free_blocks(self) -> list[int]:
        return list(self.pool.free_blocks)


@contextlib.contextmanager
def refused(manager: Watched, error: type[CacheError], **numbers: object) -> Iterator[None]:
    """What runs inside is refused with this error and these numbers, and neither changes nor reports anything."""
    before, reported = manager.snapshot(), len(manager.events)
    with pytest.raises(error) as raised:
        yield
    assert type(raised.value) is error
    assert raised.value.numbers == numbers
    assert manager.snapshot() == before
    assert len(manager.events) == reported
