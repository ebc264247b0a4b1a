"""Computes a run: each event moves tensors, then the kernels attend through every table, checked against the log."""

import math
import time
from collections.abc import Iterator

import torch
from torch import Tensor

import kernels
from pagedviz.engine import invariants
from pagedviz.engine.events import TokenWritten
from pagedviz.engine.snapshot import Snapshot
from pagedviz.play import Happening, Player
from pagedviz.runtime.decode_graph import DecodeGraphs
from pagedviz.runtime.kv_cache import KVCache
from pagedviz.runtime.kv_log import KVLog
from pagedviz.runtime.toy_model import ToyModel
from pagedviz.scenario import CacheConfig, Op
from pagedviz.trace import Check

TOLERANCE = 1e-5  # float32: largest |paged - dense| that passes
FULL_SWEEP_BLOCKS = 64  # device pools up to this size have every unowned slot looked at after every event
TILE_ELEMENTS = 4096  # of K a tile holds at most, 16 KiB: a larger block takes several turns of the kernel's loop
WEIGHTED_BLOCKS = 64  # sequences of more blocks than this have no attention weights shown


class Runner:
    """One cache, one model, one log. `perform` plays an operation and yields each happening with its check."""

    def __init__(self, cache: CacheConfig, seed: int) -> None:
        self.cache = cache
        self.device = kernels.device()
        self.model = ToyModel(cache, seed, self.device)
        self.kv = KVCache(cache, self.device)
        self.decode = DecodeGraphs()
        self.log = KVLog(cache.num_layers)
        self.player = Player(cache, seed, self._sample)

    def check_start(self) -> Check:
        """Check the empty cache: nothing to attend to yet, and every slot poisoned."""
        return self._check(self.player.base, (), None)

    def perform(self, op: Op) -> Iterator[tuple[Happening, Check]]:
        for happening in self.player.perform(op):
            yield happening, self._check(happening.snapshot, happening.broken, happening)

    def _sample(self, seq_id: str) -> str:
        return self.model.next_token(self.log.sequences[seq_id].x[-1])

    def _check(self, snapshot: Snapshot, broken: tuple[str, ...], happening: Happening | None) -> Check:
        started = time.perf_counter()
        event = happening.event if happening else None
        if isinstance(event, TokenWritten):
            errors = self._write(event, snapshot)
        else:
            if event is not None:
                self.kv.apply(event)
                self.log.apply(event)
            errors = [self._attend(layer, snapshot)[1] for layer in range(self.cache.num_layers)]
        error = {seq_id: max(layer[seq_id] for layer in errors) for seq_id in errors[0]}
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
            weights=self._weights(snapshot, getattr(event, "seq_id", None)),
            failed=tuple(s for s in snapshot.tokens if s in wrong_bytes or not error.get(s, 0.0) <= TOLERANCE),
        )

    def _write(self, event: TokenWritten, snapshot: Snapshot) -> list[dict[str, float]]:
        """Run the model over the new token, layer by layer: its K and V go to its slot, then everybody attends."""
        logged = self.log.sequences[event.seq_id]
        x = self.model.embed(event.token)
        errors = []
        for layer in range(self.cache.num_layers):
            q, k, v = self.model.qkv(layer, x, event.position)
            for row, value in ((logged.q, q), (logged.k, k), (logged.v, v)):
                row[layer].append(value)
            self.kv.store(layer, k[None], v[None], [event.slot])
            attention, error = self._attend(layer, snapshot)
            errors.append(error)
            x = self.model.after_attention(layer, x, attention[event.seq_id])
        logged.x.append(x)
        return errors

    def _attend(self, layer: int, snapshot: Snapshot) -> tuple[dict[str, Tensor], dict[str, float]]:
        """Attend from every resident sequence's newest token through its table, in one launch.

        Returns by sequence the kernel's output [num_heads, head_dim] and its largest |paged - dense|.
        """
        seq_ids = [s for s in snapshot.tokens if snapshot.tokens[s] and snapshot.is_resident(s)]
        if not seq_ids:
            return {}, {}
        width = max(len(snapshot.block_tables[s]) for s in seq_ids)
        padding = -1 if snapshot.null_block is None else snapshot.null_block
        rows = [list(snapshot.block_tables[s]) for s in seq_ids]
        self.kv.claim(block for row in rows for block in row if block is not None)
        block_tables = torch.tensor([row + [padding] * (width - len(row)) for row in rows], dtype=torch.int32)
        seq_lens = torch.tensor([snapshot.seq_len(s) for s in seq_ids], dtype=torch.int32)
        paged = self.decode(
            torch.stack([self.log.sequences[s].q[layer][-1] for s in seq_ids]),
            self.kv.k[layer],
            self.kv.v[layer],
            block_tables.to(self.device),
            seq_lens.to(self.device),
            tokens_per_tile=min(self.cache.block_size, max(16, TILE_ELEMENTS // self.cache.head_dim)),
        )
        worst = torch.stack([(out - self._dense(layer, s)).abs().max() for s, out in zip(seq_ids, paged, strict=True)])
        worst = worst.nan_to_num(
            nan=math.inf
        )  # a NaN that reached the output passes no comparison, so make it the worst
        return dict(zip(seq_ids, paged, strict=True)), dict(zip(seq_ids, worst.tolist(), strict=True))

    def _dense(self, layer: int, seq_id: str) -> Tensor:
        """The judge: float64 attention over the plain log, [num_heads, head_dim]."""
        logged = self.log.sequences[seq_id]
        k, v = logged.stacked_kv(layer)
        return kernels.dense_attention(logged.q[layer][-1][None], k, v)[0]

    def _bytes_agree(self, snapshot: Snapshot, seq_id: str) -> bool:
        if not snapshot.tokens[seq_id]:
            return True
        logged = [self.log.sequences[seq_id].stacked_kv(layer) for layer in range(self.cache.num_layers)]
        pairs = zip(self.kv.read(snapshot, seq_id), zip(*logged, strict=True), strict=True)
        # As integers: a NaN equals itself, so a NaN that was stored as it was computed is no fault of the cache.
        return all(torch.equal(cached.view(torch.int32), torch.stack(log).view(torch.int32)) for cached, log in pairs)

    def _weights(self, snapshot: Snapshot, seq_id: str | None) -> dict[str, list[list[float]]]:
        """How much of its attention a sequence's newest token pays to each of its blocks, last layer, by query head.

        Computed in float64 over the log: softmax(q K^T / sqrt(head_dim)), summed block by block.
        """
        if seq_id is None or not snapshot.tokens.get(seq_id) or len(snapshot.block_tables[seq_id]) > WEIGHTED_BLOCKS:
            return {}
        logged = self.log.sequences[seq_id]
        k = torch.stack(logged.k[-1]).double().repeat_interleave(self.cache.num_heads // self.cache.num_kv_heads, dim=1)
        scores = torch.einsum("hd,khd->hk", logged.q[-1][-1].double(), k) * self.cache.head_dim**-0.5
        by_block = scores.softmax(dim=-1).split(self.cache.block_size, dim=-1)
        rows = torch.stack([block.sum(dim=-1) for block in by_block], dim=-1)
        return {seq_id: [[round(weight, 4) for weight in row] for row in rows.tolist()]}
