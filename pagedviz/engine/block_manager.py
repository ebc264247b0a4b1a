"""The block manager: the one object that changes. Each method is one operation of a serving engine's cache.

After each atomic change it reports one event. It mutates all that belongs together first, so the invariants hold at
every report. A method that cannot do its work raises a `CacheError` before it has changed anything.
"""

from collections.abc import Callable, Collection, Iterable
from collections.abc import Sequence as Tokens

from pagedviz.engine import block_hash, errors
from pagedviz.engine.block_pool import BlockPool
from pagedviz.engine.events import (
    BlockAllocated,
    BlockCached,
    BlockCollapsed,
    BlockCopied,
    BlockEvicted,
    BlockFreed,
    BlockHit,
    BlockReleased,
    BlockReloaded,
    BlockShared,
    BlockSpilled,
    EntryRewritten,
    Event,
    SequenceAdded,
    SequenceForked,
    SequenceFreed,
    Token,
    TokensWritten,
    TokenWritten,
    WriteStopped,
)
from pagedviz.engine.policies import Freed, Profile
from pagedviz.engine.prefix_cache import PrefixCache
from pagedviz.engine.sequence import Sequence
from pagedviz.engine.snapshot import CachedBlock, Snapshot


class BlockManager:
    """Maps each sequence's logical blocks to physical blocks.

    `free_blocks` is the device pool's first free queue, head first (without the null block). `auto_spill` moves the
    least recently scheduled sequences to the host when blocks run out, instead of refusing. `prefix_caching` gives full
    blocks a hash, by which a prompt finds them. `engine_step` is counted up by whoever drives the manager; a written
    token stamps it on its sequence.
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
        self.block_size = block_size
        self.pool = BlockPool(num_blocks, free_blocks)
        self.host_pool = BlockPool(host_blocks, range(host_blocks))
        self.profile = profile
        self.auto_spill = auto_spill
        self.prefix_caching = prefix_caching
        self.cache = PrefixCache(block_size)
        self.sequences: dict[str, Sequence] = {}
        self.pinned: set[int] = set()
        self.engine_step = 0
        self._report = report
        self._last_used: dict[int, int] = {}  # of cached blocks in use: when a sequence that let go was last scheduled

    # --- what a user can do ---

    def add(self, seq_id: str, tokens: Tokens[Token], salt: str | None = None) -> None:
        """Admit a sequence: name the cached blocks of its prefix, take those of the rest, then write the rest at once.

        Cached prefixes are shared between sequences of the same `salt` only.
        """
        if seq_id in self.sequences:
            raise errors.DuplicateSequence(seq_id=seq_id)
        if not tokens:
            raise errors.NoTokens(seq_id=seq_id)
        hits = self.longest_prefix(tokens, salt)
        num_blocks = self._blocks_for(len(tokens))
        # A hit that lies in the free queue is one free block less for the others.
        revived = sum(self.pool.ref_count[block] == 0 for block in hits)
        self._make_room(seq_id, num_blocks - len(hits) + revived, alone=num_blocks, held=hits)
        seq = self.sequences[seq_id] = Sequence(seq_id, salt=salt)
        self._report(SequenceAdded(seq_id, len(tokens), salt))
        for block in hits:
            self._hit(seq, block, len(tokens))
        reason = f"a prompt of {len(tokens)} needs ceil({len(tokens)} / {self.block_size}) = {num_blocks}"
        if hits:
            reason += f", {len(hits)} of them cached"
        for _ in range(num_blocks - len(hits)):
            self._allocate(seq, reason)
        self._write(seq, tokens[len(seq.tokens) :])

    def append(self, seq_id: str, tokens: Tokens[Token]) -> None:
        """Write more tokens at once: copy a shared tail first, then take blocks for what does not fit behind it."""
        if not tokens:
            raise errors.NoTokens(seq_id=seq_id)
        self.reserve(seq_id, len(tokens))
        seq = self.sequences[seq_id]
        if seq.seq_len % self.block_size:
            self._make_writable(seq)
        seq_len = seq.seq_len + len(tokens)
        needed = self._blocks_for(seq_len)
        reason = "its last block is full"
        if len(tokens) > 1:
            reason = f"{seq.seq_len} + {len(tokens)} tokens need ceil({seq_len} / {self.block_size}) = {needed}"
        while len(seq.block_table) < needed:
            self._allocate(seq, reason)
        self._write(seq, tokens)

    def reserve(self, seq_id: str, num_tokens: int) -> None:
        """Make sure that `num_tokens` more can be written to a resident sequence, or raise. Takes no block yet."""
        seq = self._find(seq_id)
        if not seq.is_resident:
            raise errors.NotResident(seq_id=seq_id, host_blocks=seq.host_blocks)
        alone = self._blocks_for(seq.seq_len + num_tokens)
        needed = alone - len(seq.block_table)
        if seq.seq_len % self.block_size and self.pool.ref_count[self._on_device(seq, -1)] > 1:
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
        self._report(SequenceForked(seq_id, parent_id, len(parent.block_table)))
        for j in range(len(parent.block_table)):
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
        blocks = self._movable(seq, self._residents() - {seq_id})
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

    # --- the atomic changes ---

    def _allocate(self, seq: Sequence, reason: str) -> None:
        block = self._take()
        seq.name_block(block, "device")
        self._report(BlockAllocated(seq.seq_id, len(seq.block_table) - 1, block, reason))

    def _take(self) -> int:
        """The next block out of the free queue. If it is cached, nobody can hit it from now on."""
        block = self.pool.free_blocks.first
        if block in self.cache:
            self._evict(block, "it is the next out of the free queue, and is wanted for other tokens")
        return self.pool.take()

    def _evict(self, block: int, reason: str) -> None:
        link = self.cache.drop(block)
        self._last_used.pop(block, None)
        self._report(BlockEvicted(block, link.short, self.pool.ref_count[block], reason))

    def _hit(self, seq: Sequence, block: int, num_tokens: int) -> None:
        link = self.cache.links[block]
        ref_count = self.pool.take_hit(block)
        seq.name_block(block, "device")
        seq.tokens += link.tokens
        seq.links.append(link)
        j = len(seq.block_table) - 1
        self._report(BlockHit(seq.seq_id, j, block, link.short, ref_count, link.tokens, num_tokens))

    def _write(self, seq: Sequence, tokens: Tokens[Token]) -> None:
        position, size = seq.seq_len, self.block_size
        if len(tokens) == 1:
            block, offset = self._on_device(seq, position // size), position % size
            seq.tokens.append(tokens[0])
            seq.last_scheduled = self.engine_step
            slot = block * size + offset
            self._report(TokenWritten(seq.seq_id, position, tokens[0], block, offset, slot, self.engine_step))
        else:
            positions = range(position, position + len(tokens))
            slots = tuple(self._on_device(seq, p // size) * size + p % size for p in positions)
            seq.tokens += tokens
            seq.last_scheduled = self.engine_step
            self._report(TokensWritten(seq.seq_id, position, tuple(tokens), slots, self.engine_step))
        if self.profile.publish("written"):
            self._publish(seq)

    def _publish(self, seq: Sequence) -> None:
        """Give a hash to the blocks that have become full."""
        if not self.prefix_caching:
            return
        while len(seq.links) < seq.seq_len // self.block_size:
            start = len(seq.links) * self.block_size
            parent = seq.links[-1] if seq.links else None
            seq.links.append(block_hash.link(parent, seq.tokens[start : start + self.block_size], seq.salt))
            self._cache_block(seq, len(seq.links) - 1)

    def _cache_block(self, seq: Sequence, j: int) -> None:
        """Let a full block be found, or what the profile does when a block that is found holds the same."""
        block, link = self._on_device(seq, j), seq.links[j]
        cached = self.cache.find(link)
        entry: int = block
        findable: tuple[int, ...] = (block,)
        if cached is not None:
            # One link for equal content: what follows it is then compared in one step, not back to the first block.
            link = seq.links[j] = self.cache.links[cached]
            entry, findable = self.profile.duplicates(cached, block)
        if entry != block:
            self._collapse(seq, j, entry)
            return
        if cached is not None and cached not in findable:
            self._evict(cached, f"block {block} holds the same, and the map names the last writer")
        if block in findable:
            self.cache.put(block, link)
            self._report(BlockCached(seq.seq_id, j, block, link.short, link.parent_short, link.tokens))

    def _collapse(self, seq: Sequence, j: int, target: int) -> None:
        source = self._on_device(seq, j)
        ref_count = self.pool.take_hit(target)
        self.pool.release(source)
        seq.block_table[j] = target
        queue_index = self.pool.put_back(Freed(source), self.profile.free_order)
        self._report(BlockCollapsed(seq.seq_id, j, source, target, ref_count, queue_index))

    def _share(self, child: Sequence, parent: Sequence, j: int) -> None:
        block, where, pool = self._entry(parent, j)
        ref_count = pool.share(block)
        tokens = parent.tokens[j * self.block_size : (j + 1) * self.block_size]
        child.name_block(block, where)
        child.tokens += tokens
        child.links += parent.links[j : j + 1]
        self._report(BlockShared(child.seq_id, parent.seq_id, j, block, where, ref_count, tuple(tokens)))

    def _make_writable(self, seq: Sequence) -> None:
        j = len(seq.block_table) - 1
        source = self._on_device(seq, j)
        if self.pool.ref_count[source] == 1:
            return  # the last sharer writes in place
        self._report(WriteStopped(seq.seq_id, j, source, self.pool.ref_count[source]))
        target = self._take()
        self.pinned.add(target)
        self._report(BlockCopied(seq.seq_id, j, source, target, seq.seq_len % self.block_size))
        seq.block_table[j] = target
        self.pinned.remove(target)
        ref_count = self.pool.release(source)
        self._report(EntryRewritten(seq.seq_id, j, source, target, ref_count))

    def _release_last(self, seq: Sequence, runs: dict[str, list[int]]) -> None:
        j = len(seq.block_table) - 1
        block, where, pool = self._entry(seq, j)
        cached = where == "device" and block in self.cache
        last_used = max(seq.last_scheduled, self._last_used.pop(block, 0)) if cached else 0
        ref_count = pool.release(block)
        seq.drop_last_block(self.block_size)
        if ref_count:
            if cached:
                self._last_used[block] = last_used
            self._report(BlockReleased(seq.seq_id, j, block, where, ref_count, seq.seq_len))
            return
        queue_index = pool.put_back(Freed(block, cached, (last_used, -j), runs[where]), self.profile.free_order)
        self._report(BlockFreed(seq.seq_id, j, block, where, queue_index, seq.seq_len, cached))

    def _spill_blocks(self, seq: Sequence, blocks: list[int], reason: str) -> None:
        for block in blocks:
            if block in self.cache:
                self._evict(block, "it leaves the device")
            host_block = self.host_pool.take()
            self.host_pool.ref_count[host_block] = self.pool.ref_count[block]
            self.pool.ref_count[block] = 0
            sharers = self._move_entries(block, "device", host_block)
            queue_index = self.pool.put_back(Freed(block), self.profile.free_order)
            self._report(BlockSpilled(seq.seq_id, sharers, block, host_block, queue_index, reason))

    def _reload_block(self, seq: Sequence, host_block: int) -> None:
        block = self._take()
        self.pool.ref_count[block] = self.host_pool.ref_count[host_block]
        self.host_pool.ref_count[host_block] = 0
        sharers = self._move_entries(host_block, "host", block)
        queue_index = self.host_pool.put_back(Freed(host_block), self.profile.free_order)
        self._report(BlockReloaded(seq.seq_id, sharers, block, host_block, queue_index))

    # --- helpers ---

    def _on_device(self, seq: Sequence, j: int) -> int:
        block = seq.block_table[j]
        assert block is not None
        return block

    def _find(self, seq_id: str) -> Sequence:
        if seq_id not in self.sequences:
            raise errors.UnknownSequence(seq_id=seq_id, known=", ".join(self.sequences) or "none at all")
        return self.sequences[seq_id]

    def _blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def _entry(self, seq: Sequence, j: int) -> tuple[int, str, BlockPool]:
        """Logical block j's physical block, the memory it is in, and that memory's pool."""
        block = seq.block_table[j]
        if block is not None:
            return block, "device", self.pool
        host_block = seq.host_table[j]
        assert host_block is not None
        return host_block, "host", self.host_pool

    def _residents(self) -> set[str]:
        return {seq.seq_id for seq in self.sequences.values() if seq.is_resident}

    def _movable(self, seq: Sequence, residents: set[str], held: Collection[int] = ()) -> list[int]:
        """Device blocks of `seq` that none of `residents` names and that are not `held`, in table order."""
        kept = {block for other in residents for block in self.sequences[other].device_blocks} | set(held)
        return [block for block in seq.device_blocks if block not in kept]

    def _move_entries(self, block: int, where: str, target: int) -> tuple[str, ...]:
        """Point every entry that names `block` at `target` in the other memory; return whose entries they were."""
        sharers = []
        for seq in self.sequences.values():
            source_row, target_row = seq.block_table, seq.host_table
            if where == "host":
                source_row, target_row = target_row, source_row
            if block in source_row:
                j = source_row.index(block)
                source_row[j], target_row[j] = None, target
                seq.num_on_host += 1 if where == "device" else -1
                sharers.append(seq.seq_id)
        return tuple(sharers)

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
            if victim.seq_id == seq_id:
                continue
            blocks = [block for block in self._movable(victim, residents - {victim.seq_id}, held) if block not in moved]
            if len(blocks) > host_room:
                continue
            residents.discard(victim.seq_id)  # even if all of its blocks must wait for a later victim that shares them
            host_room -= len(blocks)
            moved.update(blocks)
            plan.append((victim, blocks))
        return plan if len(moved) >= missing else None
