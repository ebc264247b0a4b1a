"""Compares the cache and the kernels' outputs with the plain log, and the log with the model itself.

A new check of what the kernels computed is a method here, which `running/runner.py` calls after each event.
"""

import math

import torch
from torch import Tensor

import kernels
from pagedviz.engine.log.events.base import Event
from pagedviz.engine.log.events.blocks import BlockCollapsed, BlockHit, Written
from pagedviz.engine.log.events.transfers import BlockLoaded
from pagedviz.engine.log.events.windows import PrefixSkipped
from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.runtime.cache.kv_cache import KVCache
from pagedviz.runtime.checking.dense_rows import dense_rows
from pagedviz.runtime.checking.kv_log import KVLog
from pagedviz.runtime.checking.tolerance import MAX_SHOWN_BLOCKS
from pagedviz.runtime.computing.toy_model import ToyModel
from pagedviz.scenario.settings import CacheConfig


class Judge:
    """Every method reads one state of a run and changes nothing."""

    def __init__(self, cache: CacheConfig, model: ToyModel, kv: KVCache, log: KVLog) -> None:
        self.cache, self.model, self.kv, self.log = cache, model, kv, log

    def errors(self, layer: int, paged: dict[str, Tensor]) -> dict[str, float]:
        """By sequence the largest difference from float64 attention over the plain log, in the layer's window."""
        worst = []
        for seq_id, out in paged.items():
            logged = self.log.sequences[seq_id]
            q = torch.stack(logged.q[layer][-len(out) :])
            wanted = kernels.dense_attention(q, *logged.stacked_kv(layer), window=self.model.windows[layer])
            worst.append((out - wanted).abs().max())
        # Every comparison with a NaN is false, so a NaN in the output counts as an infinite error.
        return dict(zip(paged, torch.stack(worst).nan_to_num(nan=math.inf).tolist(), strict=True))

    def num_complete(self, event: Event | None) -> int:
        """How many blocks of the event's sequence have their rows in every layer of the log."""
        logged = self.log.sequences.get(getattr(event, "seq_id", ""))
        return min(map(len, logged.rows())) // self.cache.block_size if logged else 0

    def adopted(self, event: Event | None, num_complete: int) -> list[tuple[str, int]]:
        """Sequences and logical blocks that, after this event and its launch, hold rows that another sequence computed.

        `num_complete` was counted before the event. The log has the event already, and not the launch.
        """
        if isinstance(event, Written):
            size, logs = self.cache.block_size, self.log.sequences
            waiting = [write for write in event.writes if logs[write.seq_id].awaited]
            had = {write.seq_id: min(map(len, logs[write.seq_id].rows())) // size for write in waiting}
            return [(w.seq_id, j) for w in waiting for j in range(had[w.seq_id], w.position // size)]
        match event:
            case BlockCollapsed():
                return [(event.seq_id, event.logical_block)]
            case BlockHit() | PrefixSkipped():
                return [(event.seq_id, j) for j in range(num_complete, self.num_complete(event))]
        return []

    def error_of_hit(self, snapshot: Snapshot, seq_id: str, logical_block: int) -> float:
        """The largest difference of a block's rows from what the model gives for the sequence's own tokens.

        This finds a block with the wrong tokens, or after a wrong prefix, whose bytes are all as its first owner wrote
        them.
        """
        logged, size = self.log.sequences[seq_id], self.cache.block_size
        block = slice(logical_block * size, (logical_block + 1) * size)
        own = dense_rows(self.model, snapshot.tokens[seq_id][block], logged.shortened(block.start))
        pairs = [*zip(own.k + own.v, logged.k + logged.v, strict=True), (own.x, logged.x)]
        worst = [(torch.stack(row) - torch.stack(kept[block])).abs().max() for row, kept in pairs]
        return float(torch.stack(worst).nan_to_num(nan=math.inf).max())

    def bytes_agree(self, snapshot: Snapshot, seq_id: str) -> bool:
        """Does every byte of K and V through the sequence's tables equal the log? The null block holds none."""
        groups = range(len(self.cache.windows))
        return all(self._group_agrees(snapshot, seq_id, group) for group in groups if snapshot.tokens[seq_id])

    def _group_agrees(self, snapshot: Snapshot, seq_id: str, group: int) -> bool:
        row, size = snapshot.tables(group)[seq_id], self.cache.block_size
        # While a prefix is hit or released, group after group, a table may have fewer entries than its tokens need.
        seq_len = snapshot.seq_len(seq_id)
        num_tokens = min(seq_len, len(row) * size)
        here = [p for p in range(num_tokens) if row[p // size] is None or row[p // size] != snapshot.null_block]
        logged, num_groups = self.log.sequences[seq_id], len(self.cache.windows)
        of_group = [*logged.k[group::num_groups], *logged.v[group::num_groups]]
        if any(not num_tokens <= len(rows) <= seq_len for rows in of_group):
            return False
        if not here:
            return True
        cached = torch.cat(self.kv.read(snapshot, seq_id, group))
        return _same_bits(cached[:, here], torch.stack([torch.stack([rows[p] for p in here]) for rows in of_group]))

    def load_errors(self, event: Event | None) -> list[str]:
        """A sentence if a loaded block differs in any byte from what was stored."""
        if not isinstance(event, BlockLoaded):
            return []
        self.kv.claim((event.block,))
        pairs = zip((self.kv.k, self.kv.v), self.log.cached[event.block].stacked_kv(), strict=True)
        if all(_same_bits(slabs[:, event.block], kept) for slabs, kept in pairs):
            return []
        return [f"bytes: K or V of block {event.block} is not what was stored of {event.block_hash}"]

    def weights(self, snapshot: Snapshot, event: Event | None) -> dict[str, list[list[float]]]:
        """For each sequence of this step, how much attention its newest token pays to each of its blocks.

        Last layer, by query head, in float64 over the log: softmax(q K^T / sqrt(head_dim)), summed block by block. A
        sequence without complete rows, or with a NaN in its log, is left out.
        """
        seq_ids = [write.seq_id for write in event.writes] if isinstance(event, Written) else []
        seq_ids = seq_ids or [getattr(event, "seq_id", "")]
        shown = [s for s in seq_ids if 0 < len(snapshot.block_tables.get(s, ())) <= MAX_SHOWN_BLOCKS]
        rows = {seq_id: self._weights_of(seq_id) for seq_id in shown}
        return {seq_id: weights for seq_id, weights in rows.items() if weights}

    def _weights_of(self, seq_id: str) -> list[list[float]]:
        logged, window = self.log.sequences[seq_id], self.model.windows[-1]
        if not logged.x or len(logged.k[-1]) < len(logged.x):  # the last layer's table is not complete yet
            return []
        k = torch.stack(logged.k[-1]).double().repeat_interleave(self.cache.num_heads // self.cache.num_kv_heads, dim=1)
        scores = torch.einsum("hd,khd->hk", logged.q[-1][-1].double(), k) * self.cache.head_dim**-0.5
        if window is not None:
            scores[:, :-window] = -math.inf
        by_block = scores.softmax(dim=-1).split(self.cache.block_size, dim=-1)
        rows = torch.stack([block.sum(dim=-1) for block in by_block], dim=-1)
        # A wrong kernel's NaN goes into the log of the next layer. It is no weight, and JSON has no NaN.
        if not rows.isfinite().all():
            return []
        return [[round(weight, 4) for weight in row] for row in rows.tolist()]


def _same_bits(one: Tensor, other: Tensor) -> bool:
    """Compare as integers, where a NaN equals itself: the cache must store a NaN as it was computed."""
    return torch.equal(one.contiguous().view(torch.int32), other.contiguous().view(torch.int32))
