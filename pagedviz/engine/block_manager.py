"""The block manager: what can be asked of a serving engine's cache. Each public method is one operation.

An operation that cannot be done raises a `CacheError` before it has changed anything; the changes themselves, and the
events that tell them, are in `block_changes`.
"""

from collections.abc import Callable, Collection, Iterable
from collections.abc import Sequence as Tokens
from typing import NamedTuple

from pagedviz.engine import errors
from pagedviz.engine.block_changes import BlockChanges
from pagedviz.engine.events import Event, SequenceAdded, SequenceForked, SequenceFreed, Token
from pagedviz.engine.policies import Profile
from pagedviz.engine.sequence import Sequence
from pagedviz.engine.snapshot import CachedBlock, Snapshot


class Need(NamedTuple):
    """What a prompt takes if it is admitted now: `hits` are the cached blocks that it names, `num_hit_tokens` what they
    hold; `num_blocks` entries in all, for which `from_queue` blocks leave the free queue, hits among them."""

    hits: list[int]
    num_hit_tokens: int
    num_blocks: int
    from_queue: int


class BlockManager(BlockChanges):
    """Maps each sequence's logical blocks to physical blocks.

    `free_blocks` is the device pool's first free queue, head first (without the null block). `auto_spill` moves the
    least recently scheduled sequences to the host when blocks run out, instead of refusing. `prefix_caching` gives full
    blocks a hash, by which a prompt finds them.
    """

    def __init__(
        self,
        *,
        block_size: int,
        num_blocks: int,
        free_blocks: Iterable[int],
        host_blocks: int,
        profile: Profile,
        auto_spill: bool,
        report: Callable[[Event], None],
        prefix_caching: bool = False,
    ) -> None:
        super().__init__(
            block_size=block_size,
            num_blocks=num_blocks,
            free_blocks=free_blocks,
            host_blocks=host_blocks,
            profile=profile,
            prefix_caching=prefix_caching,
            report=report,
        )
        self.auto_spill = auto_spill

    # --- what a user can do ---

    def add(self, seq_id: str, tokens: Tokens[Token], salt: str | None = None) -> None:
        """Admit a sequence and write all of its prompt at once. Cached prefixes are shared within one `salt` only."""
        if seq_id in self.sequences:
            raise errors.DuplicateSequence(seq_id=seq_id)
        if not tokens:
            raise errors.NoTokens(seq_id=seq_id)
        self.admit(seq_id, tokens, salt, len(tokens))
        self.write([seq_id])

    def append(self, seq_id: str, tokens: Tokens[Token]) -> None:
        """Write more tokens at once."""
        if not tokens:
            raise errors.NoTokens(seq_id=seq_id)
        self.extend(seq_id, tokens)
        self.write([seq_id])

    def need(self, tokens: Tokens[Token], salt: str | None, seq_len: int) -> Need:
        """What a prompt takes of which `seq_len` tokens get slots, counted from its first. Changes nothing."""
        hits = self.longest_prefix(tokens, salt)
        num_hit_tokens = len(hits) * self.block_size
        num_blocks = self.blocks_for(max(seq_len, num_hit_tokens))
        # A hit that lies in the free queue is one free block less for the others.
        revived = sum(self.pool.ref_count[block] == 0 for block in hits)
        return Need(hits, num_hit_tokens, num_blocks, num_blocks - len(hits) + revived)

    def admit(
        self,
        seq_id: str,
        tokens: Tokens[Token],
        salt: str | None,
        until: int,
        *,
        seq_len: int | None = None,
        managed: bool = False,
    ) -> None:
        """Make a sequence: name the cached blocks of its prefix, take those of the rest, and schedule the rest.

        `tokens` up to `until` are scheduled for the next launch, and there are blocks for `seq_len` of them (`until`
        when not given).
        """
        if seq_id in self.sequences:
            raise errors.DuplicateSequence(seq_id=seq_id)
        seq_len = until if seq_len is None else seq_len
        hits, num_hit_tokens, num_blocks, from_queue = self.need(tokens, salt, seq_len)
        self._make_room(seq_id, from_queue, alone=num_blocks, held=hits)
        seq = self.sequences[seq_id] = Sequence(seq_id, salt=salt, managed=managed)
        self._report(SequenceAdded(seq_id, len(tokens), salt))
        for block in hits:
            self._hit(seq, block, len(tokens))
        wanted = f"a prompt of {seq_len}" if seq_len == len(tokens) else f"the first {seq_len} of a prompt"
        reason = f"{wanted} needs ceil({seq_len} / {self.block_size}) = {num_blocks}"
        if hits:
            reason += f", {len(hits)} of them cached"
        for _ in range(num_blocks - len(hits)):
            self._allocate(seq, reason)
        self._schedule(seq, tokens[num_hit_tokens:until])

    def extend(self, seq_id: str, tokens: Tokens[Token]) -> None:
        """Schedule more tokens: copy a shared tail first, then take blocks for what does not fit behind it."""
        self.reserve(seq_id, len(tokens))
        seq = self.sequences[seq_id]
        if seq.seq_len % self.block_size:
            self._make_writable(seq)
        seq_len = seq.seq_len + len(tokens)
        needed = self.blocks_for(seq_len)
        reason = "its last block is full"
        if len(tokens) > 1:
            reason = f"{seq.seq_len} + {len(tokens)} tokens need ceil({seq_len} / {self.block_size}) = {needed}"
        while len(seq.block_table) < needed:
            self._allocate(seq, reason)
        self._schedule(seq, tokens)

    def unschedule(self, seq_id: str) -> None:
        """Take back what a sequence was scheduled; its blocks stay its own."""
        seq = self._find(seq_id)
        for j in range(seq.seq_len // self.block_size, len(seq.links)):
            self._forget_pending(self._on_device(seq, j))
        del seq.links[seq.seq_len // self.block_size :]
        seq.scheduled = ()

    def movable(self, seq_id: str) -> list[int]:
        """The device blocks that a spill of this sequence would move now."""
        return self._movable(self._find(seq_id), self._residents() - {seq_id})

    def write(self, seq_ids: Iterable[str]) -> None:
        """One launch: each of these sequences writes what it was scheduled, in this order."""
        self._write([self.sequences[seq_id] for seq_id in seq_ids])

    def reserve(self, seq_id: str, num_tokens: int) -> None:
        """Make sure that `num_tokens` more can be written to a resident sequence, or raise. Takes no block yet."""
        seq = self._find(seq_id)
        if not seq.is_resident:
            raise errors.NotResident(seq_id=seq_id, host_blocks=seq.host_blocks)
        alone = self.blocks_for(seq.seq_len + num_tokens)
        needed = alone - len(seq.block_table)
        j, filled = divmod(seq.seq_len, self.block_size)
        if filled and self.pool.ref_count[self._on_device(seq, j)] > 1:
            needed += 1  # the first write copies the shared tail
        self._make_room(seq_id, needed, alone)

    def fork(self, parent_id: str, seq_id: str) -> None:
        """Make a sequence that shares every block of its parent, the partly filled one too. No block is taken."""
        parent = self._find(parent_id)
        if seq_id in self.sequences:
            raise errors.DuplicateSequence(seq_id=seq_id)
        if not self.profile.fork:
            raise errors.ForkUnsupported(seq_id=seq_id, profile=self.profile.name)
        child = self.sequences[seq_id] = Sequence(seq_id, last_scheduled=parent.last_scheduled, salt=parent.salt)
        num_blocks = self.blocks_for(parent.seq_len)  # one that was reserved and holds nothing is not shared
        self._report(SequenceForked(seq_id, parent_id, num_blocks))
        for j in range(num_blocks):
            self._share(child, parent, j)

    def free(self, seq_id: str) -> None:
        """Finish a sequence: let go of its blocks from the last to the first, and forget it."""
        seq = self._find(seq_id)
        runs: dict[str, list[int]] = {"device": [], "host": []}
        while seq.block_table:
            self._release_last(seq, runs)
        del self.sequences[seq_id]
        self._report(SequenceFreed(seq_id))

    def spill(self, seq_id: str) -> None:
        """Move to the host all blocks of a sequence that no other resident sequence names: all of them, or none."""
        seq = self._find(seq_id)
        if not seq.device_blocks:
            raise errors.AlreadySpilled(seq_id=seq_id)
        blocks = self.movable(seq_id)
        if not blocks:
            raise errors.SharedWithResident(seq_id=seq_id, blocks=seq.device_blocks)
        if len(blocks) > len(self.host_pool.free_blocks):
            raise errors.NoFreeHostBlocks(
                seq_id=seq_id,
                needed=len(blocks),
                free=len(self.host_pool.free_blocks),
                total=self.host_pool.num_blocks,
            )
        self._spill_blocks(seq, blocks, f"{seq_id} was asked to leave the device")

    def reload(self, seq_id: str) -> None:
        """Bring all of a sequence's blocks back to the device, to whichever blocks are free."""
        seq = self._find(seq_id)
        if seq.is_resident:
            raise errors.AlreadyResident(seq_id=seq_id)
        self._make_room(seq_id, len(seq.host_blocks), alone=len(seq.block_table))
        reloaded = [j for j, host_block in enumerate(seq.host_table) if host_block is not None]
        for host_block in seq.host_blocks:
            self._reload_block(seq, host_block)
        for j in reloaded:
            if j < len(seq.links) and self.cache.find(seq.links[j]) is None:
                self._cache_block(seq, j)

    def longest_prefix(self, tokens: Tokens[Token], salt: str | None = None) -> list[int]:
        """The cached blocks that a prompt would name now, from its block 0 on. Changes nothing."""
        return self.cache.longest_prefix(tokens, salt) if self.prefix_caching else []

    def reset_prefix_cache(self) -> None:
        """Forget every cached prefix, as after new weights. Refused while a block is in use, as vLLM and SGLang do.

        A sequence in use goes on with K and V of before, so a hash that it publishes later would be a lie.
        """
        in_use = self.pool.num_blocks - self.profile.null_block - len(self.pool.free_blocks)
        if self.sequences:
            raise errors.BlocksInUse(in_use=in_use + self.host_pool.num_blocks - len(self.host_pool.free_blocks))
        for block in list(self.cache.links):
            self._evict(block, "all cached prefixes were reset")

    def snapshot(self) -> Snapshot:
        """The state now, frozen."""
        sequences = self.sequences.values()
        return Snapshot(
            block_size=self.block_size,
            num_blocks=self.pool.num_blocks,
            host_blocks=self.host_pool.num_blocks,
            null_block=0 if self.profile.null_block else None,
            block_tables={seq.seq_id: tuple(seq.block_table) for seq in sequences},
            host_tables={seq.seq_id: tuple(seq.host_table) for seq in sequences},
            tokens={seq.seq_id: tuple(seq.tokens) for seq in sequences},
            last_scheduled={seq.seq_id: seq.last_scheduled for seq in sequences},
            ref_counts={block: count for block, count in enumerate(self.pool.ref_count) if count},
            host_ref_counts={block: count for block, count in enumerate(self.host_pool.ref_count) if count},
            pinned=tuple(sorted(self.pinned)),
            free_blocks=tuple(self.pool.free_blocks),
            host_free_blocks=tuple(self.host_pool.free_blocks),
            salts={seq.seq_id: seq.salt for seq in sequences},
            cached={
                block: CachedBlock(link.short, link.parent_short, link.tokens, link.salt)
                for block, link in self.cache.links.items()
            },
        )

    # --- helpers ---

    def _find(self, seq_id: str) -> Sequence:
        if seq_id not in self.sequences:
            raise errors.UnknownSequence(seq_id=seq_id, known=", ".join(self.sequences) or "none at all")
        return self.sequences[seq_id]

    def blocks_for(self, num_tokens: int) -> int:
        """How many blocks so many tokens fill, the last perhaps in part."""
        return -(-num_tokens // self.block_size)

    def _residents(self) -> set[str]:
        return {seq.seq_id for seq in self.sequences.values() if seq.is_resident}

    def _movable(self, seq: Sequence, residents: set[str], held: Collection[int] = ()) -> list[int]:
        """Device blocks of `seq` that none of `residents` names and that are not `held`, in table order."""
        kept = {block for other in residents for block in self.sequences[other].device_blocks} | set(held)
        return [block for block in seq.device_blocks if block not in kept]

    def _make_room(self, seq_id: str, needed: int, alone: int, held: Collection[int] = ()) -> None:
        """Raise unless `needed` blocks are free, or come free by spilling the least recently scheduled sequences.

        `alone` is what the sequence takes with nobody else in the pool: more than the pool has can never fit. Blocks
        that it is about to hit are `held`, so they stay on the device.
        """
        free, total = len(self.pool.free_blocks), self.pool.num_blocks - self.profile.null_block
        if needed <= free:
            return
        if alone > total:
            raise errors.NeverFits(seq_id=seq_id, needed=alone, total=total)
        plan = self._spill_plan(seq_id, needed - free, held) if self.auto_spill else None
        if plan is None:
            raise errors.NoFreeBlocks(seq_id=seq_id, needed=needed, free=free, total=total)
        for victim, blocks in plan:
            self._spill_blocks(victim, blocks, f"{seq_id} needs room and {victim.seq_id} was scheduled longest ago")

    def _spill_plan(self, seq_id: str, missing: int, held: Collection[int]) -> list[tuple[Sequence, list[int]]] | None:
        """Which blocks of whom to spill so that `missing` more come free, least recently scheduled first.

        None when the host has too little room or too few blocks can move. What `seq_id` names stays on the device.
        """
        residents = self._residents() | ({seq_id} & self.sequences.keys())
        host_room = len(self.host_pool.free_blocks)
        moved: set[int] = set()
        plan: list[tuple[Sequence, list[int]]] = []
        for victim in sorted(self.sequences.values(), key=lambda seq: seq.last_scheduled):
            if len(moved) >= missing:
                break
            if victim.seq_id == seq_id or victim.managed:
                continue
            blocks = [block for block in self._movable(victim, residents - {victim.seq_id}, held) if block not in moved]
            if len(blocks) > host_room:
                continue
            residents.discard(victim.seq_id)  # even if all of its blocks must wait for a later victim that shares them
            host_room -= len(blocks)
            moved.update(blocks)
            plan.append((victim, blocks))
        return plan if len(moved) >= missing else None
