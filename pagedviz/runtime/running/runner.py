"""Computes a run. Each event moves tensors, then the kernels attend through every table, and the judge checks all."""

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor

import kernels
from pagedviz.engine.log import invariants
from pagedviz.engine.log.events.base import Event, Write
from pagedviz.engine.log.events.blocks import Written
from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.model.dense_model import Array
from pagedviz.run.play import Happening, Player
from pagedviz.run.trace import Check
from pagedviz.runtime.cache.kv_cache import KVCache
from pagedviz.runtime.checking.dense_rows import dense_rows
from pagedviz.runtime.checking.judge import Judge
from pagedviz.runtime.checking.kv_log import KVLog
from pagedviz.runtime.checking.tolerance import MAX_SHOWN_BLOCKS, TOLERANCE
from pagedviz.runtime.computing.decode_graph import DecodeGraphs
from pagedviz.runtime.computing.launch_input import LaunchInput, launch_input
from pagedviz.runtime.computing.toy_model import ToyModel
from pagedviz.runtime.running.recording import Recording
from pagedviz.scenario.operations import Op
from pagedviz.scenario.scenario import Scenario
from pagedviz.scenario.settings import CacheConfig

FULL_SWEEP_BLOCKS = 64  # up to so many blocks or chunks, every unowned slot is checked after every event
TILE_ELEMENTS = 4096  # of K in a tile at most, 16 KiB: a larger block takes several turns of the kernel's loop


class Runner:
    """One cache, one model, one log. `perform` plays an operation and yields each happening with its check."""

    def __init__(self, cache: CacheConfig, seed: int) -> None:
        self.cache = cache
        self.device = kernels.device()
        self.model = ToyModel(cache, seed, self.device)
        self.kv = KVCache(cache, self.device)
        self.decode = DecodeGraphs()
        self.log = KVLog(cache, partial(dense_rows, self.model))
        self.judge = Judge(cache, self.model, self.kv, self.log)
        # Not a bound method: it would refer back to the runner, and a circle of references delays freeing the tensors.
        self.player = Player(cache, seed, partial(_logits, self.model, self.log))
        self.recording = Recording(Scenario(seed, cache), self.player.base, self.device)

    def check_start(self) -> Check:
        """Check the empty cache: nothing to attend to yet, and every slot poisoned."""
        return self._check(self.player.base, (), None)

    def perform(self, op: Op) -> Iterator[tuple[Happening, Check]]:
        self.recording.note_op(op)
        for happening in self.player.perform(op):
            check = self._check(happening.snapshot, happening.broken, happening)
            self.recording.note(happening, self.log.sequences)
            yield happening, check

    def play(self, op: Op) -> Iterator[tuple[Happening, float]]:
        """Play an operation and check its new tokens only: each happening, and the largest error of what it wrote."""
        for happening in self.player.perform(op):
            event, error = happening.event, 0.0
            self.kv.apply(event, happening.snapshot.cached)
            self.log.apply(event)
            if isinstance(event, Written):
                tokens = {write.seq_id: happening.snapshot.tokens[write.seq_id] for write in event.writes}
                alone = replace(happening.snapshot, tokens=tokens)
                error = max(self._launch(alone, event).values())
            yield happening, error

    def _check(self, snapshot: Snapshot, broken: tuple[str, ...], happening: Happening | None) -> Check:
        started = time.perf_counter()
        event = happening.event if happening else None
        num_complete = self.judge.num_complete(event)
        if event is not None:
            self.kv.apply(event, snapshot.cached)
            self.log.apply(event)
        adopted = self.judge.adopted(event, num_complete)
        error = self._launch(snapshot, event)
        for seq_id, logical_block in adopted:
            of_hit = self.judge.error_of_hit(snapshot, seq_id, logical_block)
            error[seq_id] = max(error.get(seq_id, 0.0), of_hit)
        wrong_bytes = [seq_id for seq_id in snapshot.tokens if not self.judge.bytes_agree(snapshot, seq_id)]
        broken += tuple(f"bytes: K or V of {seq_id} through its table differs from its log" for seq_id in wrong_bytes)
        broken += tuple(self.judge.load_errors(event))
        num_invariants = len(invariants.INVARIANTS) + 1  # the engine's, and the bytes through the tables
        if max(self.cache.num_blocks, self.cache.host_chunks) <= FULL_SWEEP_BLOCKS:
            num_invariants += 1
            broken += tuple(self.kv.unpoisoned(snapshot))
        worst = max(error.values(), default=0.0)
        return Check(
            max_error=worst if math.isfinite(worst) else None,
            tolerance=TOLERANCE,
            compared=len(error),
            num_layers=self.cache.num_layers,
            broken=broken,
            num_invariants=num_invariants,
            backend=kernels.backend_name(),
            milliseconds=(time.perf_counter() - started) * 1000,
            weights=self.judge.weights(snapshot, event),
            failed=tuple(s for s in snapshot.tokens if s in wrong_bytes or not error.get(s, 0.0) <= TOLERANCE),
        )

    def _launch(self, snapshot: Snapshot, event: Event | None) -> dict[str, float]:
        """Take the event's new tokens, if any, through the model, layer by layer, and attend for every sequence.

        In each layer one launch stores K and V and one attends, through the tables of the layer's group. Returns the
        largest |paged - dense| of each sequence.
        """
        launches = [launch_input(snapshot, event, group) for group in range(len(snapshot.windows))]
        writes = event.writes if isinstance(event, Written) else ()
        rows = {write.seq_id: [self.model.embed(token) for token in write.tokens] for write in writes}
        error = dict.fromkeys(launches[0].seq_ids, 0.0)
        for launch in launches:
            self.kv.claim(launch.block_tables.flatten().tolist())
        launches = [launch.on(self.device) for launch in launches]  # once, not in every layer
        for layer in range(self.cache.num_layers if error else 0):
            launch = launches[layer % len(launches)]
            for write in writes:
                self._project(layer, write, rows[write.seq_id])
            if writes:
                k, v = self._newest(launch, layer, "k"), self._newest(launch, layer, "v")
                self.kv.store(layer, k, v, launch.slot_mapping)
            paged = self._attend(layer, launch)
            for seq_id, worst in self.judge.errors(layer, paged).items():
                error[seq_id] = max(error[seq_id], worst)
            for seq_id, x in rows.items():
                rows[seq_id] = [self.model.after_attention(layer, *row) for row in zip(x, paged[seq_id], strict=True)]
        for seq_id, x in rows.items():
            self.log.sequences[seq_id].finish(x)
        return error

    def _project(self, layer: int, write: Write, rows: list[Tensor]) -> None:
        """Log q, k and v of a sequence's new tokens in one layer, each row computed by itself."""
        logged = self.log.sequences[write.seq_id]
        logged.take_awaited(layer)
        for position, x in enumerate(rows, write.position):
            for row, value in zip((logged.q, logged.k, logged.v), self.model.qkv(layer, x, position), strict=True):
                row[layer].append(value)

    def _newest(self, launch: LaunchInput, layer: int, what: Literal["q", "k", "v"]) -> Tensor:
        """The rows of the launch's tokens in one layer, from the log: [num_tokens, heads, head_dim]."""
        rows: list[Tensor] = []
        for seq_id, query_len in zip(launch.seq_ids, launch.query_lens, strict=True):
            rows += getattr(self.log.sequences[seq_id], what)[layer][-query_len:]
        return torch.stack(rows)

    def _attend(self, layer: int, launch: LaunchInput) -> dict[str, Tensor]:
        """Attend from the launch's tokens through the tables: by sequence [query_len, num_heads, head_dim]."""
        q, (k_cache, v_cache) = self._newest(launch, layer, "q"), self.kv.of_layer(layer)
        inputs, tile = (q, k_cache, v_cache, launch.block_tables, launch.seq_lens), self._tokens_per_tile(launch)
        if launch.is_decode:
            paged = self.decode(*inputs, window=launch.window, tokens_per_tile=tile)
        else:
            starts = launch.query_start_loc
            paged = kernels.paged_prefill(*inputs, starts, window=launch.window, tokens_per_tile=tile)
        return dict(zip(launch.seq_ids, paged.split_with_sizes(launch.query_lens), strict=True))

    def _tokens_per_tile(self, launch: LaunchInput) -> int | None:
        """How many tokens a turn of the kernel's loop takes: one block, where the lens may show the turns.

        Prompts and long tables take more: None on a GPU, where the kernel chooses by measurements, and a large tile on
        a CPU, where an interpreted turn takes equally long for any tile.
        """
        most = max(16, TILE_ELEMENTS // self.cache.head_dim)
        if launch.is_decode and launch.block_tables.shape[1] <= MAX_SHOWN_BLOCKS:
            return min(self.cache.block_size, most)
        return None if self.device.type == "cuda" else most


def _logits(model: ToyModel, log: KVLog, seq_id: str, position: int) -> Array:
    return model.logits(log.sequences[seq_id].x[position])
