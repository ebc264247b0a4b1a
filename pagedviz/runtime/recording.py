"""What a run did to its tensors, so that any earlier state can be had again: the same events, the same kernels."""

from bisect import bisect_right
from dataclasses import dataclass, replace

import torch

from pagedviz.engine.log import replay
from pagedviz.engine.log.events.base import Event
from pagedviz.engine.log.events.blocks import Written
from pagedviz.engine.log.replay.history import KEY_FRAME, History
from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.run.play import Happening
from pagedviz.runtime.kv_cache import KVCache
from pagedviz.runtime.kv_log import LoggedSequence
from pagedviz.runtime.launch_input import slots_of
from pagedviz.scenario.operations import Op
from pagedviz.scenario.scenario import Scenario

FRAME_BYTES = 64 * 2**20  # of copies of the cache that are kept on the way; without room for them all is played again


@dataclass(frozen=True)
class Moment:
    """A run after some of its events.

    `scenario` has the operations so far, `event` is the last event, `kv` the cache. `log` holds each sequence's q, k
    and v, perhaps with tokens from later on.
    """

    scenario: Scenario
    event: Event | None
    snapshot: Snapshot
    kv: KVCache
    log: dict[str, LoggedSequence]


class Recording:
    """Takes a note of everything that is computed; `at` plays it again on a cache of its own, up to what is asked for.

    It has no tensors until somebody asks: those in the log are the run's.
    """

    def __init__(self, scenario: Scenario, base: Snapshot, device: torch.device) -> None:
        self._scenario = replace(scenario, ops=())
        self._device = device
        self._history = History(base)
        self._ops: list[Op] = []
        self._op_indices: list[int] = []  # by event
        self._logs: dict[str, list[tuple[int, LoggedSequence]]] = {}  # from which state on, by sequence
        self._kv: KVCache | None = None
        self._index = 0
        self._frames: dict[int, KVCache] = {}

    def note_op(self, op: Op) -> None:
        """Remember the operation that the next happenings belong to."""
        self._ops.append(op)

    def note(self, happening: Happening, log: dict[str, LoggedSequence]) -> None:
        """Remember what has just been computed, and the logs as they are now."""
        self._history.append(happening.event, happening.snapshot)
        self._op_indices.append(happening.op_index)
        for seq_id, logged in log.items():
            kept = self._logs.setdefault(seq_id, [])
            if not kept or kept[-1][1] is not logged:
                kept.append((len(self._op_indices), logged))

    def at(self, index: int) -> Moment:
        """The run after `index` events; 0 is its start. Its cache is good until the next call."""
        kv = self._cache_at(index)
        snapshot = self._history.at(index)
        ops = self._ops[: self._op_indices[index - 1] + 1] if index else []
        return Moment(
            scenario=replace(self._scenario, ops=tuple(ops)),
            event=self._history.events[index - 1] if index else None,
            snapshot=snapshot,
            kv=kv,
            log={seq_id: self._log(seq_id, index) for seq_id in snapshot.tokens},
        )

    def _cache_at(self, index: int) -> KVCache:
        if self._kv is None or index < self._index:
            frame = max((at for at in self._frames if at <= index), default=0)
            self._kv = self._frames[frame].clone() if frame else KVCache(self._scenario.cache, self._device)
            self._index = frame
        snapshot = self._history.at(self._index)
        while self._index < index:
            event = self._history.events[self._index]
            snapshot = replay.apply(snapshot, event)
            self._index += 1
            self._kv.apply(event, snapshot.cached)
            if isinstance(event, Written):
                self._store(self._kv, event, snapshot)
            new = self._index % KEY_FRAME == 0 and self._index not in self._frames
            if new and (len(self._frames) + 1) * self._kv.num_bytes <= FRAME_BYTES:
                self._frames[self._index] = self._kv.clone()
        self._kv.settle()
        return self._kv

    def _store(self, kv: KVCache, event: Written, snapshot: Snapshot) -> None:
        groups = len(snapshot.windows)
        for write in event.writes:
            logged, slots = self._log(write.seq_id, self._index), [slots_of(snapshot, write, g) for g in range(groups)]
            rows = slice(write.position, write.position + len(write.slots))
            for layer in range(self._scenario.cache.num_layers):
                k, v = torch.stack(logged.k[layer][rows]), torch.stack(logged.v[layer][rows])
                kv.store(layer, k, v, slots[layer % groups])

    def _log(self, seq_id: str, index: int) -> LoggedSequence:
        kept = self._logs[seq_id]
        return kept[bisect_right(kept, index, key=lambda entry: entry[0]) - 1][1]
