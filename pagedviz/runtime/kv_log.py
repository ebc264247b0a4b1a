"""The plain log: what each sequence's K and V are, kept apart from the cache. It judges the cache."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pagedviz.engine.events import (
    BlockCached,
    BlockCollapsed,
    BlockEvicted,
    BlockFreed,
    BlockHit,
    BlockReleased,
    BlockShared,
    Event,
    SequenceAdded,
    SequenceForked,
    SequenceFreed,
)

TOLERANCE = 1e-5  # float32: largest |paged - dense| that passes


@dataclass(frozen=True)
class CachedRows:
    """Where the rows of a cached block are, or will be after the next launch: in the log of who fills it."""

    logged: "LoggedSequence"
    rows: slice

    def of(self, row: list[Tensor]) -> list[Tensor]:
        """The block's part of one of the log's lists."""
        return row[self.rows]


class LoggedSequence:
    """One sequence, token after token: `q`, `k`, `v` are lists by layer of [seq_len, heads, head_dim]; `x` is the last
    hidden state of each token, [seq_len, hidden]."""

    def __init__(self, num_layers: int) -> None:
        self.q: list[list[Tensor]] = [[] for _ in range(num_layers)]
        self.k: list[list[Tensor]] = [[] for _ in range(num_layers)]
        self.v: list[list[Tensor]] = [[] for _ in range(num_layers)]
        self.x: list[Tensor] = []
        self.awaited: list[CachedRows] = []  # of blocks that the next launch fills for another sequence

    def rows(self) -> list[list[Tensor]]:
        """Every list that grows by one element a token."""
        return [*self.q, *self.k, *self.v, self.x]

    def stacked_kv(self, layer: int, seq_len: int | None = None) -> tuple[Tensor, Tensor]:
        """K and V of the first `seq_len` tokens, or of all, each [seq_len, num_kv_heads, head_dim]."""
        return torch.stack(self.k[layer][:seq_len]), torch.stack(self.v[layer][:seq_len])

    def take_awaited(self, layer: int) -> None:
        """Take over one layer's rows of the awaited blocks: who fills them has just computed them."""
        for block in self.awaited:
            theirs = block.logged
            for mine, row in ((self.q, theirs.q), (self.k, theirs.k), (self.v, theirs.v)):
                mine[layer] += block.of(row[layer])

    def finish(self, rows: list[Tensor]) -> None:
        """Add the last hidden states of a launch, behind those of the awaited blocks."""
        for block in self.awaited:
            self.x += block.of(block.logged.x)
        self.awaited = []
        self.x += rows

    def shortened(self, num_tokens: int) -> "LoggedSequence":
        """Another log with the first tokens of this one, which stays as it is for whoever looks back."""
        shorter = LoggedSequence(len(self.q))
        for row, mine in zip(shorter.rows(), self.rows(), strict=True):
            row += mine[:num_tokens]
        return shorter


class KVLog:
    """The logs of all sequences. Tokens are appended by the runner; events share and shorten what is there.

    `cached[block]` keeps the rows of a cached block until its hash goes, for whoever computed them may be gone before.
    """

    def __init__(self, num_layers: int) -> None:
        self.num_layers = num_layers
        self.sequences: dict[str, LoggedSequence] = {}
        self.cached: dict[int, CachedRows] = {}

    def apply(self, event: Event) -> None:
        match event:
            case SequenceAdded() | SequenceForked():
                self.sequences[event.seq_id] = LoggedSequence(self.num_layers)
            case BlockShared():
                child, parent = self.sequences[event.seq_id], self.sequences[event.parent]
                first = len(child.x)
                for mine, theirs in zip(child.rows(), parent.rows(), strict=True):
                    mine += theirs[first : first + len(event.tokens)]
            case BlockCached():
                start, size = event.logical_block * len(event.tokens), len(event.tokens)
                rows = slice(start, start + size)
                self.cached[event.block] = CachedRows(self.sequences[event.seq_id], rows)
            case BlockHit(computed=False):
                self.sequences[event.seq_id].awaited.append(self.cached[event.block])
            case BlockHit():
                kept = self.cached[event.block]
                for mine, row in zip(self.sequences[event.seq_id].rows(), kept.logged.rows(), strict=True):
                    mine += kept.of(row)
            case BlockCollapsed():
                self._collapse(event)
            case BlockEvicted():
                del self.cached[event.block]
            case BlockReleased() | BlockFreed():
                self.sequences[event.seq_id] = self.sequences[event.seq_id].shortened(event.num_tokens)
            case SequenceFreed():
                del self.sequences[event.seq_id]

    def _collapse(self, event: BlockCollapsed) -> None:
        """The sequence's block is now another one, perhaps with other last bits: what it holds is what counts."""
        kept = self.cached[event.target]
        size = kept.rows.stop - kept.rows.start
        start = event.logical_block * size
        logged = self.sequences[event.seq_id]
        collapsed = logged.shortened(start)
        for row, theirs, mine in zip(collapsed.rows(), kept.logged.rows(), logged.rows(), strict=True):
            row += kept.of(theirs) + mine[start + size :]
        self.sequences[event.seq_id] = collapsed
