"""Computes a run: each event moves tensors, then the kernels attend through every table, checked against the log."""

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

import kernels
from pagedviz.dense_model import Array
from pagedviz.engine import invariants
from pagedviz.engine.events import BatchWritten, BlockCollapsed, BlockHit, Event, Write, Written
from pagedviz.engine.snapshot import Snapshot
from pagedviz.play import Happening, Player
from pagedviz.probe import Probe
from pagedviz.runtime import probes
from pagedviz.runtime.decode_graph import DecodeGraphs
from pagedviz.runtime.kv_cache import KVCache
from pagedviz.runtime.kv_log import TOLERANCE, KVLog
from pagedviz.runtime.launch_input import LaunchInput, launch_input
from pagedviz.runtime.probes.lens import MAX_BLOCKS
from pagedviz.runtime.recording import Recording
from pagedviz.runtime.toy_model import ToyModel
from pagedviz.scenario import CacheConfig, Op, Scenario
from pagedviz.trace import Check

FULL_SWEEP_BLOCKS = 64  # device pools up to this size have every unowned slot looked at after every event
TILE_ELEMENTS = 4096  # of K a tile holds at most, 16 KiB: a larger block takes several turns of the kernel's loop


class Runner:
    """One cache, one model, one log. `perform` plays an operation and yields each happening with its check."""

    def __init__(self, cache: CacheConfig, seed: int) -> None:
        self.cache = cache
        self.device = kernels.device()
        self.model = ToyModel(cache, seed, self.device)
        self.kv = KVCache(cache, self.device)
        self.decode = DecodeGraphs()
        self.log = KVLog(cache.num_layers)
        # Not a method: in a circle of references the tensors of a closed run would wait to be collected.
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
        """Play an operation with a look at new tokens only: each happening, and the largest error of what it wrote."""
        for happening in self.player.perform(op):
            event, error = happening.event, 0.0
            self.kv.apply(event)
            self.log.apply(event)
            if isinstance(event, Written):
                tokens = {write.seq_id: happening.snapshot.tokens[write.seq_id] for write in event.writes}
                alone = replace(happening.snapshot, tokens=tokens)
                error = max(self._launch(launch_input(alone, event), event).values())
            yield happening, error

    def ask(self, probe: Probe, index: int) -> dict[str, Any]:
        """Answer a probe at the state after `index` happenings, as plain JSON."""
        return probes.answer(probe, self.recording.at(index))

    def _check(self, snapshot: Snapshot, broken: tuple[str, ...], happening: Happening | None) -> Check:
        started = time.perf_counter()
        event = happening.event if happening else None
        if event is not None:
            self.kv.apply(event)
            self.log.apply(event)
        adopted = self._adopted(event)
        error = self._launch(launch_input(snapshot, event), event)
        for seq_id, logical_block in adopted:
            error[seq_id] = max(error[seq_id], self._error_of_hit(snapshot, seq_id, logical_block))
        wrong_bytes = [seq_id for seq_id in snapshot.tokens if not self._bytes_agree(snapshot, seq_id)]
        broken += tuple(f"bytes: K or V of {seq_id} through its table differs from its log" for seq_id in wrong_bytes)
        num_invariants = len(invariants.INVARIANTS) + 1  # the engine's, and the bytes through the tables
        if self.cache.num_blocks <= FULL_SWEEP_BLOCKS:
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
            weights=self._weights(snapshot, event),
            failed=tuple(s for s in snapshot.tokens if s in wrong_bytes or not error.get(s, 0.0) <= TOLERANCE),
        )

    def _launch(self, launch: LaunchInput, event: Event | None) -> dict[str, float]:
        """Take the event's new tokens, if any, through the model, layer by layer, and let everybody attend.

        In each layer one launch stores K and V and one attends. Returns by sequence the largest |paged - dense|.
        """
        writes = event.writes if isinstance(event, Written) else ()
        rows = {write.seq_id: [self.model.embed(token) for token in write.tokens] for write in writes}
        error = dict.fromkeys(launch.seq_ids, 0.0)
        self.kv.claim(launch.block_tables.flatten().tolist())
        launch = launch.on(self.device)  # once, not in every layer
        for layer in range(self.cache.num_layers if error else 0):
            for write in writes:
                self._project(layer, write, rows[write.seq_id])
            if writes:
                k, v = self._newest(launch, layer, "k"), self._newest(launch, layer, "v")
                self.kv.store(layer, k, v, launch.slot_mapping)
            paged = self._attend(layer, launch)
            for seq_id, worst in self._errors(layer, paged).items():
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
        q, k_cache, v_cache = self._newest(launch, layer, "q"), self.kv.k[layer], self.kv.v[layer]
        inputs, tile = (q, k_cache, v_cache, launch.block_tables, launch.seq_lens), self._tokens_per_tile(launch)
        if launch.is_decode:
            paged = self.decode(*inputs, tokens_per_tile=tile)
        else:
            paged = kernels.paged_prefill(*inputs, launch.query_start_loc, tokens_per_tile=tile)
        return dict(zip(launch.seq_ids, paged.split_with_sizes(launch.query_lens), strict=True))

    def _tokens_per_tile(self, launch: LaunchInput) -> int | None:
        """How many tokens a turn of the kernel's loop takes: one block, wherever the lens may look at its turns.

        Prompts and long tables take more. A compiled kernel then chooses what was measured (None); an interpreted turn
        takes as long whatever its tile, so there it is large.
        """
        most = max(16, TILE_ELEMENTS // self.cache.head_dim)
        if launch.is_decode and launch.block_tables.shape[1] <= MAX_BLOCKS:
            return min(self.cache.block_size, most)
        return None if self.device.type == "cuda" else most

    def _errors(self, layer: int, paged: dict[str, Tensor]) -> dict[str, float]:
        """By sequence the largest difference from the judge, float64 attention over the plain log."""
        worst = []
        for seq_id, out in paged.items():
            logged = self.log.sequences[seq_id]
            q = torch.stack(logged.q[layer][-len(out) :])
            worst.append((out - kernels.dense_attention(q, *logged.stacked_kv(layer))).abs().max())
        # A NaN that reached the output passes no comparison, so it is made the worst.
        return dict(zip(paged, torch.stack(worst).nan_to_num(nan=math.inf).tolist(), strict=True))

    def _adopted(self, event: Event | None) -> list[tuple[str, int]]:
        """Which logical blocks of whom hold, after this event, what another sequence computed."""
        match event:
            case BlockHit(computed=True) | BlockCollapsed():
                return [(event.seq_id, event.logical_block)]
            case BatchWritten():
                size, logs = self.cache.block_size, self.log.sequences
                waiting = [(write, len(logs[write.seq_id].awaited)) for write in event.writes]
                return [(w.seq_id, w.position // size - k) for w, count in waiting for k in range(1, count + 1)]
        return []

    def _error_of_hit(self, snapshot: Snapshot, seq_id: str, logical_block: int) -> float:
        """The largest difference of a cached block's rows from what the model gives for the sequence's own tokens.

        So a block with other tokens, or behind others, is found out although its bytes are those of its first owner.
        """
        logged, size = self.log.sequences[seq_id], self.cache.block_size
        block = slice(logical_block * size, (logical_block + 1) * size)
        tokens = snapshot.tokens[seq_id][block]
        rows, worst = [self.model.embed(token) for token in tokens], []
        for layer in range(self.cache.num_layers):
            projected = [self.model.qkv(layer, x, position) for position, x in enumerate(rows, block.start)]
            q, k, v = (torch.stack(heads) for heads in zip(*projected, strict=True))
            past_k, past_v = logged.stacked_kv(layer, block.stop)
            worst += [(k - past_k[block]).abs().max(), (v - past_v[block]).abs().max()]
            attended = kernels.dense_attention(q, past_k, past_v).to(q.dtype)
            rows = [self.model.after_attention(layer, x, out) for x, out in zip(rows, attended, strict=True)]
        worst.append((torch.stack(rows) - torch.stack(logged.x[block])).abs().max())
        return float(torch.stack(worst).nan_to_num(nan=math.inf).max())

    def _bytes_agree(self, snapshot: Snapshot, seq_id: str) -> bool:
        if not snapshot.tokens[seq_id]:
            return True
        logged = [self.log.sequences[seq_id].stacked_kv(layer) for layer in range(self.cache.num_layers)]
        pairs = zip(self.kv.read(snapshot, seq_id), zip(*logged, strict=True), strict=True)
        # As integers: a NaN equals itself, so a NaN that was stored as it was computed is no fault of the cache.
        return all(torch.equal(cached.view(torch.int32), torch.stack(log).view(torch.int32)) for cached, log in pairs)

    def _weights(self, snapshot: Snapshot, event: Event | None) -> dict[str, list[list[float]]]:
        """By sequence of this step, how much of its attention its newest token pays to each of its blocks.

        Last layer, by query head, in float64 over the log: softmax(q K^T / sqrt(head_dim)), summed block by block.
        Without those that have none, or where the log itself holds NaN.
        """
        seq_ids = [write.seq_id for write in event.writes] if isinstance(event, Written) else []
        seq_ids = seq_ids or [getattr(event, "seq_id", "")]
        rows = {s: self._weights_of(s) for s in seq_ids if 0 < len(snapshot.block_tables.get(s, ())) <= MAX_BLOCKS}
        return {seq_id: weights for seq_id, weights in rows.items() if weights}

    def _weights_of(self, seq_id: str) -> list[list[float]]:
        logged = self.log.sequences[seq_id]
        if not logged.x:
            return []
        k = torch.stack(logged.k[-1]).double().repeat_interleave(self.cache.num_heads // self.cache.num_kv_heads, dim=1)
        scores = torch.einsum("hd,khd->hk", logged.q[-1][-1].double(), k) * self.cache.head_dim**-0.5
        by_block = scores.softmax(dim=-1).split(self.cache.block_size, dim=-1)
        rows = torch.stack([block.sum(dim=-1) for block in by_block], dim=-1)
        # What a wrong kernel gave goes on into the next layer; a NaN from there is no weight, and no JSON.
        if not rows.isfinite().all():
            return []
        return [[round(weight, 4) for weight in row] for row in rows.tolist()]


def _logits(model: ToyModel, log: KVLog, seq_id: str, position: int) -> Array:
    return model.logits(log.sequences[seq_id].x[position])
