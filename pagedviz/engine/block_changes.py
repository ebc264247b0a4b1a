"""The atomic changes of a paged cache, and the state that they change. Each reports one event when it is done.

All that belongs together is changed before the report, so the invariants hold at every one of them. Nothing is refused
here: whoever calls has made sure of room.
"""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Tokens

from pagedviz.engine import block_hash
from pagedviz.engine.block_pool import BlockPool
from pagedviz.engine.events import (
    BatchWritten,
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
    Token,
    TokensWritten,
    TokenWritten,
    WriteStopped,
)
from pagedviz.engine.policies import Freed, Profile
from pagedviz.engine.prefix_cache import PrefixCache
from pagedviz.engine.sequence import Sequence


class BlockChanges:
    """Two pools, the sequences with their tables, and what may be hit. `BlockManager` decides, this does.

    `pending` blocks have a hash already and will hold their tokens after this step's launch. `engine_step` is counted
    up by whoever drives the manager; a written token stamps it on its sequence.
    """

    def __init__(
        self,
        *,
        block_size: int,
        num_blocks: int,
        free_blocks: Iterable[int],
        host_blocks: int,
        profile: Profile,
        prefix_caching: bool,
        report: Callable[[Event], None],
    ) -> None:
        self.block_size = block_size
        self.pool = BlockPool(num_blocks, free_blocks)
        self.host_pool = BlockPool(host_blocks, range(host_blocks))
        self.profile = profile
        self.prefix_caching = prefix_caching
        self.cache = PrefixCache(block_size)
        self.sequences: dict[str, Sequence] = {}
        self.pinned: set[int] = set()
        self.pending: set[int] = set()
        self.engine_step = 0
        self._report = report
        self._last_used: dict[int, int] = {}  # of cached blocks in use: when a sequence that let go was last scheduled

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

    def _forget_pending(self, block: int) -> None:
        """Who was to fill a block gives it up, so nobody may hit it."""
        if block in self.pending:
            self.pending.remove(block)
            self._evict(block, "it was never filled")

    def _hit(self, seq: Sequence, block: int, num_tokens: int) -> None:
        link = self.cache.links[block]
        ref_count = self.pool.take_hit(block)
        seq.name_block(block, "device")
        # What another sequence fills in this step's launch is there after it, and so is what lies behind.
        computed = block not in self.pending and not seq.awaited
        (seq.tokens if computed else seq.awaited).extend(link.tokens)
        seq.links.append(link)
        j = len(seq.block_table) - 1
        self._report(BlockHit(seq.seq_id, j, block, link.short, ref_count, link.tokens, num_tokens, computed))

    def _schedule(self, seq: Sequence, tokens: Tokens[Token]) -> None:
        """Let the next launch write these tokens; their blocks are in the table."""
        seq.scheduled = tokens
        if self.profile.publish("scheduled"):
            self._publish(seq)

    def _write(self, sequences: Tokens[Sequence]) -> None:
        """One launch: every sequence writes what it was scheduled."""
        size, writes = self.block_size, []
        for seq in sequences:
            seq.tokens += seq.awaited
            position, tokens = seq.seq_len, tuple(seq.scheduled)
            positions = range(position, position + len(tokens))
            slots = tuple([self._on_device(seq, p // size) * size + p % size for p in positions])
            seq.tokens += tokens
            seq.scheduled, seq.awaited, seq.last_scheduled = (), [], self.engine_step
            writes.append((seq.seq_id, position, tokens, slots))
        self.pending.clear()
        if len(writes) > 1:
            seq_ids, starts, batch, batch_slots = zip(*writes, strict=True)
            self._report(BatchWritten(seq_ids, starts, batch, batch_slots, self.engine_step))
        elif len(tokens) > 1:
            self._report(TokensWritten(*writes[0], self.engine_step))
        else:
            block, offset = divmod(slots[0], size)
            self._report(TokenWritten(seq.seq_id, position, tokens[0], block, offset, slots[0], self.engine_step))
        if self.profile.publish("written"):
            for seq in sequences:
                self._publish(seq)

    def _publish(self, seq: Sequence) -> None:
        """Give a hash to the blocks that are full, with what the next launch writes."""
        if not self.prefix_caching:
            return
        size = self.block_size
        end = (seq.seq_len + len(seq.awaited) + len(seq.scheduled)) // size
        while len(seq.links) < end:
            j = len(seq.links)
            tokens = seq.tokens[j * size : (j + 1) * size]
            if len(tokens) < size:
                ahead = [*seq.awaited, *seq.scheduled]
                first = max(0, j * size - seq.seq_len)
                tokens += ahead[first : first + size - len(tokens)]
                self.pending.add(self._on_device(seq, j))
            parent = seq.links[-1] if seq.links else None
            seq.links.append(block_hash.link(parent, tokens, seq.salt))
            self._cache_block(seq, j)

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
        j = seq.seq_len // self.block_size
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
        if where == "device":
            self._forget_pending(block)
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

    def _on_device(self, seq: Sequence, j: int) -> int:
        block = seq.block_table[j]
        assert block is not None
        return block

    def _entry(self, seq: Sequence, j: int) -> tuple[int, str, BlockPool]:
        """Logical block j's physical block, the memory it is in, and that memory's pool."""
        block = seq.block_table[j]
        if block is not None:
            return block, "device", self.pool
        host_block = seq.host_table[j]
        assert host_block is not None
        return host_block, "host", self.host_pool

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
