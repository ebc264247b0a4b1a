"""The plain log: K and V of each sequence, kept apart from the cache. The judge compares the cache with it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pagedviz.engine.log.events.base import Event, Token
from pagedviz.engine.log.events.blocks import (
    BlockCached,
    BlockCollapsed,
    BlockEvicted,
    BlockFreed,
    BlockHit,
    BlockReleased,
    BlockShared,
    SequenceAdded,
    SequenceForked,
    SequenceFreed,
)
from pagedviz.engine.log.events.drafts import DraftsVerified
from pagedviz.engine.log.events.transfers import (
    BlockLoaded,
    TierEvicted,
    TierLoadBegun,
    TierLoadCancelled,
    TierLoadEnded,
    TierLoadFailed,
    TierStoreBegun,
    TierStoreCancelled,
    TierStoreFailed,
)
from pagedviz.engine.log.events.windows import PrefixSkipped
from pagedviz.scenario.settings import CacheConfig


@dataclass(frozen=True)
class CachedRows:
    """Where the rows of a cached block are, or will be after the next launch: in the log of the sequence that fills the
    block. A block has K and V of its group's `layers` only."""

    logged: "LoggedSequence"
    rows: slice
    layers: range

    def of(self, row: list[Tensor]) -> list[Tensor]:
        """The block's part of one of the log's lists."""
        return row[self.rows]

    def stacked_kv(self) -> tuple[Tensor, Tensor]:
        """The block's K and V, each [num_slabs, block_size, num_kv_heads, head_dim]."""
        k, v = (
            torch.stack([torch.stack(self.of(rows[layer])) for layer in self.layers])
            for rows in (self.logged.k, self.logged.v)
        )
        return k, v


class LoggedSequence:
    """One sequence, token after token: `q`, `k`, `v` are lists by layer of [seq_len, heads, head_dim]; `x` is the last
    hidden state of each token, [seq_len, hidden]."""

    def __init__(self, num_layers: int) -> None:
        self.q: list[list[Tensor]] = [[] for _ in range(num_layers)]
        self.k: list[list[Tensor]] = [[] for _ in range(num_layers)]
        self.v: list[list[Tensor]] = [[] for _ in range(num_layers)]
        self.x: list[Tensor] = []
        self.awaited: list[CachedRows] = []  # rows of hit blocks that the next launch computes for another sequence

    def rows(self, layers: range | None = None) -> list[list[Tensor]]:
        """Every list that grows by one element a token, or those of some layers; `x` belongs to layer 0."""
        layers = range(len(self.q)) if layers is None else layers
        lists = [values[layer] for values in (self.q, self.k, self.v) for layer in layers]
        return [*lists, self.x] if 0 in layers else lists

    def stacked_kv(self, layer: int, seq_len: int | None = None) -> tuple[Tensor, Tensor]:
        """K and V of the first `seq_len` tokens, or of all, each [seq_len, num_kv_heads, head_dim]."""
        return torch.stack(self.k[layer][:seq_len]), torch.stack(self.v[layer][:seq_len])

    def take_awaited(self, layer: int) -> None:
        """Take over one layer's rows of the awaited blocks: the sequence that fills them has just computed them."""
        for block in self.awaited:
            if layer in block.layers:
                theirs = block.logged
                for mine, row in ((self.q, theirs.q), (self.k, theirs.k), (self.v, theirs.v)):
                    mine[layer] += block.of(row[layer])

    def finish(self, rows: list[Tensor]) -> None:
        """Add the last hidden states: first those of the awaited blocks, then `rows`, the launch's own."""
        for block in self.awaited:
            if 0 in block.layers:
                self.x += block.of(block.logged.x)
        self.awaited = []
        self.x += rows

    def shortened(self, num_tokens: int) -> "LoggedSequence":
        """Another log with the first tokens of this one. This one stays as it is: a recording may refer to it."""
        shorter = LoggedSequence(len(self.q))
        for row, mine in zip(shorter.rows(), self.rows(), strict=True):
            row += mine[:num_tokens]
        return shorter


class KVLog:
    """The logs of all sequences. Tokens are appended by the runner; events share and shorten what is there.

    `cached[block]` keeps the rows of a cached block until the block loses its hash, because the sequence that computed
    them may be freed before. `stored[chunk]` has the rows that were stored in a chunk of the host tier. `dense(tokens)`
    computes the rows of a sequence that begins with these tokens: for rows that are in no block any more.
    """

    def __init__(self, cache: CacheConfig, dense: Callable[[Sequence[Token]], LoggedSequence]) -> None:
        self.num_layers, self.num_groups, self.block_size = cache.num_layers, len(cache.windows), cache.block_size
        self.sequences: dict[str, LoggedSequence] = {}
        self.cached: dict[int, CachedRows] = {}
        self.stored: dict[int, CachedRows] = {}
        self._loading: dict[int, CachedRows] = {}  # by device block
        self._dense = dense

    def apply(self, event: Event) -> None:
        match event:
            case SequenceAdded():
                self.sequences[event.seq_id] = LoggedSequence(self.num_layers)
            case SequenceForked():
                parent = self.sequences[event.parent]
                self.sequences[event.seq_id] = parent.shortened(event.num_skipped * self.block_size)
            case BlockShared():
                child, parent = self.sequences[event.seq_id], self.sequences[event.parent]
                first = len(child.x)
                for mine, theirs in zip(child.rows(), parent.rows(), strict=True):
                    mine += theirs[first : first + len(event.tokens)]
            case BlockCached():
                start, size = event.logical_block * len(event.tokens), len(event.tokens)
                place = slice(start, start + size)
                self.cached[event.block] = CachedRows(self.sequences[event.seq_id], place, self._layers(event.group))
            case BlockHit():
                self._adopt(event.seq_id, self.cached[event.block], event.computed)
            case PrefixSkipped():
                self._skip(event)
            case BlockCollapsed():
                self._collapse(event)
            case BlockEvicted():
                del self.cached[event.block]
            case BlockReleased() | BlockFreed() if event.group:
                pass  # the log is shortened with the blocks of the first group
            case BlockReleased() | BlockFreed() | DraftsVerified():
                self.sequences[event.seq_id] = self.sequences[event.seq_id].shortened(event.num_tokens)
            case SequenceFreed():
                del self.sequences[event.seq_id]
            case _:
                self._apply_to_tier(event)

    def _apply_to_tier(self, event: Event) -> None:
        match event:
            case TierStoreBegun():
                self.stored |= {c: self.cached[b] for c, b in zip(event.chunks, event.device_blocks, strict=True)}
            case TierLoadBegun():
                self._loading |= {b: self.stored[c] for c, b in zip(event.chunks, event.device_blocks, strict=True)}
            case BlockLoaded():
                self.cached[event.block] = self._loading.pop(event.block)
            case TierEvicted():
                del self.stored[event.chunk]
            case TierStoreFailed() | TierStoreCancelled():
                for chunk in event.chunks:
                    del self.stored[chunk]
            case TierLoadEnded():
                for chunk in event.freed:
                    del self.stored[chunk]
                for block in event.device_blocks if isinstance(event, TierLoadFailed | TierLoadCancelled) else ():
                    del self._loading[block]

    def _adopt(self, seq_id: str, block: CachedRows, computed: bool) -> None:
        """Take over the rows that another sequence has computed, or will compute in the next launch."""
        logged = self.sequences[seq_id]
        if not computed:
            logged.awaited.append(block)
            return
        for row, other in zip(logged.rows(block.layers), block.logged.rows(block.layers), strict=True):
            row += block.of(other)

    def _skip(self, event: PrefixSkipped) -> None:
        """Add the rows that no block holds. Rows that the first group awaits, all groups await."""
        logged, dense, end = self.sequences[event.seq_id], self._dense(event.tokens), len(event.tokens)
        known = min(len(logged.x), end) if logged.awaited else end
        self._adopt(event.seq_id, CachedRows(dense, slice(0, known), self._layers(event.group)), computed=True)
        if known < end:
            rest = CachedRows(dense, slice(known, end), self._layers(event.group))
            self._adopt(event.seq_id, rest, computed=False)

    def _layers(self, group: int | None) -> range:
        return range(group or 0, self.num_layers, self.num_groups)

    def _collapse(self, event: BlockCollapsed) -> None:
        """From now on the sequence reads another block, perhaps with other last bits: log what that block holds."""
        kept = self.cached[event.target]
        start = event.logical_block * self.block_size
        logged = self.sequences[event.seq_id]
        collapsed = self.sequences[event.seq_id] = logged.shortened(len(logged.x))
        for row, theirs in zip(collapsed.rows(kept.layers), kept.logged.rows(kept.layers), strict=True):
            row[start : start + self.block_size] = kept.of(theirs)
