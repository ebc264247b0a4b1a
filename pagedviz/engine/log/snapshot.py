"""The whole state of the cache, frozen."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from pagedviz.engine.log.events.base import Token
from pagedviz.engine.log.host_snapshot import TierSnapshot

TableRow = tuple[int | None, ...]


class CachedBlock(NamedTuple):
    """What a block with a hash holds. Only in a sequence's first block is `parent_hash` None, and may `salt` be set."""

    block_hash: str
    parent_hash: str | None
    tokens: tuple[Token, ...]
    salt: str | None
    group: int = 0


class RequestState(NamedTuple):
    """A request. `outputs` are by sequence; there is one sequence unless there are several `samples` or `beams`. The
    newest output of each is not yet in a slot. Each sequence generates `num_tokens` outputs. `scores` of beams are sums
    of log-probabilities."""

    prompt: tuple[Token, ...]
    outputs: Mapping[str, tuple[Token, ...]]
    num_tokens: int
    priority: int
    salt: str | None
    samples: int = 1
    beams: int = 1
    scores: Mapping[str, float] = MappingProxyType({})

    @property
    def output(self) -> tuple[Token, ...]:
        """The outputs of the first sequence."""
        return next(iter(self.outputs.values()))

    @property
    def width(self) -> int:
        """How many sequences it has behind its prompt."""
        return max(self.samples, self.beams)

    def to_json(self) -> dict[str, Any]:
        return {
            **self._asdict(),
            "outputs": {seq_id: list(tokens) for seq_id, tokens in self.outputs.items()},
            "scores": dict(self.scores),
        }


@dataclass(frozen=True)
class Snapshot:
    """The whole state of the manager and the scheduler.

    `block_tables` and `host_tables` have one entry for each logical block, None if the block is in the other memory.
    `ref_counts` has only the blocks in use. `pinned` blocks are held for a copy or a transfer. `free_blocks` begins
    with the head of the queue, which is handed out next. `cached` blocks have a hash, in use or free, and are full; if
    a block got its hash when it was scheduled, it is full after the launch.

    Layers may be in several groups. Each group has its own window (None: all tokens are seen) and its own tables, all
    over one pool: `block_tables` are those of group 0, `group_tables` those of the others. An entry out of its window
    names the null block. The next launch writes a sequence's `drafted` tokens behind the known ones. The newest
    `unverified` tokens of a sequence are drafts that were written and may be rolled back. `tier` is the host tier, if
    there is one.

    An unfinished request is in one of `waiting`, `running` and `swapped`; a finished one is in none. `scheduled` are
    the tokens that the launch of `engine_step` computes for each running sequence, at most `token_budget` in all.
    """

    block_size: int
    num_blocks: int
    host_blocks: int
    null_block: int | None
    block_tables: Mapping[str, TableRow]
    host_tables: Mapping[str, TableRow]
    tokens: Mapping[str, tuple[Token, ...]]
    last_scheduled: Mapping[str, int]
    ref_counts: Mapping[int, int]
    host_ref_counts: Mapping[int, int]
    pinned: tuple[int, ...]
    free_blocks: tuple[int, ...]
    host_free_blocks: tuple[int, ...]
    salts: Mapping[str, str | None] = field(default_factory=dict)
    cached: Mapping[int, CachedBlock] = field(default_factory=dict)
    requests: Mapping[str, RequestState] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    swapped: tuple[str, ...] = ()
    scheduled: Mapping[str, int] = field(default_factory=dict)
    engine_step: int = 0
    token_budget: int = 0
    windows: tuple[int | None, ...] = (None,)
    group_tables: tuple[Mapping[str, TableRow], ...] = ()
    drafted: Mapping[str, tuple[Token, ...]] = field(default_factory=dict)
    unverified: Mapping[str, int] = field(default_factory=dict)
    tier: TierSnapshot | None = None

    def tables(self, group: int) -> Mapping[str, TableRow]:
        """The block tables of one group."""
        return self.group_tables[group - 1] if group else self.block_tables

    @property
    def all_tables(self) -> tuple[Mapping[str, TableRow], ...]:
        """The block tables of every group."""
        return (self.block_tables, *self.group_tables)

    def request_of(self, seq_id: str) -> str:
        """The name of the request that a sequence belongs to. Raises KeyError if it belongs to none."""
        for name, request in self.requests.items():
            if seq_id in request.outputs:
                return name
        raise KeyError(seq_id)

    def seq_len(self, seq_id: str) -> int:
        """Tokens in the cache, the newest included."""
        return len(self.tokens[seq_id])

    def verified(self, seq_id: str) -> tuple[Token, ...]:
        """Its tokens in the cache, without the drafts that are not verified yet."""
        tokens = self.tokens[seq_id]
        return tokens[: len(tokens) - self.unverified.get(seq_id, 0)]

    def is_resident(self, seq_id: str) -> bool:
        """Whether all blocks of the sequence are on the device, so that a kernel can read them."""
        return all(block is None for block in self.host_tables[seq_id])

    def filled(self, seq_id: str, logical_block: int) -> int:
        """How many slots of one logical block are filled, 0 to block_size."""
        return max(0, min(self.block_size, self.seq_len(seq_id) - logical_block * self.block_size))

    def to_json(self) -> dict[str, Any]:
        return {
            "block_size": self.block_size,
            "num_blocks": self.num_blocks,
            "host_blocks": self.host_blocks,
            "null_block": self.null_block,
            "block_tables": {seq_id: list(row) for seq_id, row in self.block_tables.items()},
            "host_tables": {seq_id: list(row) for seq_id, row in self.host_tables.items()},
            "tokens": {seq_id: list(tokens) for seq_id, tokens in self.tokens.items()},
            "seq_lens": {seq_id: len(tokens) for seq_id, tokens in self.tokens.items()},
            "last_scheduled": dict(self.last_scheduled),
            "ref_counts": {str(block): count for block, count in sorted(self.ref_counts.items())},
            "host_ref_counts": {str(block): count for block, count in sorted(self.host_ref_counts.items())},
            "pinned": list(self.pinned),
            "free_blocks": list(self.free_blocks),
            "host_free_blocks": list(self.host_free_blocks),
            "cached": {str(block): entry.block_hash for block, entry in sorted(self.cached.items())},
            "requests": {seq_id: request.to_json() for seq_id, request in self.requests.items()},
            "waiting": list(self.waiting),
            "running": list(self.running),
            "swapped": list(self.swapped),
            "scheduled": dict(self.scheduled),
            "engine_step": self.engine_step,
            "token_budget": self.token_budget,
            "windows": list(self.windows),
            "group_tables": [{seq_id: list(row) for seq_id, row in tables.items()} for tables in self.group_tables],
            "drafted": {seq_id: list(tokens) for seq_id, tokens in self.drafted.items()},
            "unverified": dict(self.unverified),
            "tier": self.tier.to_json() if self.tier else None,
        }
