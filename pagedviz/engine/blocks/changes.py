"""The atomic changes of a paged cache, and the state that they change. Each reports one event when it is done.

All that belongs together is changed before the report, so the invariants hold at every one of them. Nothing is refused
here: whoever calls has made sure of room.
"""

from collections.abc import Callable, Collection, Iterable
from collections.abc import Sequence as Tokens
from typing import Literal

from pagedviz.engine.blocks import hashing
from pagedviz.engine.blocks.hashing import Link
from pagedviz.engine.blocks.pool import BlockPool
from pagedviz.engine.blocks.prefix_cache import PrefixCache
from pagedviz.engine.blocks.sequence import Sequence
from pagedviz.engine.log import errors
from pagedviz.engine.log.events.base import Event, Token
from pagedviz.engine.log.events.blocks import (
    BatchWritten,
    BlockAllocated,
    BlockCached,
    BlockCollapsed,
    BlockCopied,
    BlockEvicted,
    BlockFreed,
    BlockHit,
    BlockReleased,
    BlockShared,
    EntryRewritten,
    TokensWritten,
    TokenWritten,
    WriteStopped,
)
from pagedviz.engine.log.events.drafts import DraftsDropped, DraftsVerified, TokensDrafted
from pagedviz.engine.log.events.transfers import BlockReloaded, BlockSpilled
from pagedviz.engine.log.events.windows import BlockOutOfWindow, NullBlockTaken, PrefixSkipped
from pagedviz.engine.policies.free_orders import Freed
from pagedviz.engine.policies.profiles import Profile
from pagedviz.engine.policies.windows import Window, first_seen


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
        windows: Tokens[Window] = (None,),
    ) -> None:
        self.windows = tuple(windows)
        self.has_window = any(window is not None for window in self.windows)
        # A profile without one takes it from the pool when a window first needs it.
        self.null_block: int | None = 0 if profile.null_block else None
        self.block_size = block_size
        self.pool = BlockPool(num_blocks, free_blocks)
        self.host_pool = BlockPool(host_blocks, range(host_blocks))
        self.profile = profile
        self.prefix_caching = prefix_caching
        self.cache = PrefixCache(block_size)
        self.sequences: dict[str, Sequence] = {}
        self.pinned: set[int] = set()
        self.pending: set[int] = set()
        self.is_stored = False  # somebody wants to know of every cached block
        self.engine_step = 0
        self._report = report
        self._last_used: dict[int, int] = {}  # of cached blocks in use: when a sequence that let go was last scheduled
        self._uses: dict[int, int] = {}  # of cached blocks: by how many sequences, who computed it is the first

    @property
    def total(self) -> int:
        """Device blocks that sequences can have: without the null block, also one that is still to be taken."""
        return self.pool.num_blocks - (self.null_block is not None or self.has_window)

    def must_be_there(self, seq_id: str) -> None:
        """Raise unless there is such a sequence."""
        self._find(seq_id)

    def _find(self, seq_id: str) -> Sequence:
        if seq_id not in self.sequences:
            raise errors.UnknownSequence(seq_id=seq_id, known=", ".join(self.sequences) or "none at all")
        return self.sequences[seq_id]

    def _label(self, group: int) -> int | None:
        """A group as an event tells it: not at all where there is only one."""
        return group if len(self.windows) > 1 else None

    def _allocate(self, seq: Sequence, reason: str, group: int = 0) -> None:
        block = self._take()
        seq.name_block(block, "device", group)
        j = len(seq.block_tables[group]) - 1
        self._report(BlockAllocated(seq.seq_id, j, block, reason, self._label(group)))

    def _take_null_block(self, held: Collection[int] = ()) -> int:
        """The null block's id; the first time in a profile that has none, a free block becomes it for good, but none of
        those `held`."""
        if self.null_block is None:
            block = next(block for block in self.pool.free_blocks if block not in held)
            self._evict_for_others(block)
            self.pool.free_blocks.remove(block)
            self.null_block = block
            self._report(NullBlockTaken(block))
        return self.null_block

    def _let_go_out_of_window(self, seq: Sequence) -> None:
        """What no token to come looks at is let go, tail first; the entries name the null block."""
        for group, end in enumerate(self._window_ends(seq)):
            row, run = seq.block_tables[group], list[int]()
            for j in range(end - 1, seq.num_skipped[group] - 1, -1):
                block = self._on_device(seq, j, group)
                ref_count, cached, queue_index = self._let_go(seq, j, block, self.pool, run)
                row[j] = null_block = self._take_null_block()
                seen = first_seen(seq.seq_len, self.windows[group])
                told = (seq.seq_id, j, block, null_block, ref_count, queue_index, cached, seen, self._label(group))
                self._report(BlockOutOfWindow(*told))
            seq.num_skipped[group] = max(end, seq.num_skipped[group])

    def _window_ends(self, seq: Sequence) -> list[int]:
        """By group, how many leading entries need not be there for the tokens to come."""
        return [
            0 if window is None else self.profile.window_release(seq.seq_len, window, self.block_size)
            for window in self.windows
        ]

    def _take(self) -> int:
        """The next block out of the free queue. If it is cached, nobody can hit it from now on."""
        block = self.pool.free_blocks.first
        self._evict_for_others(block)
        return self.pool.take()

    def _evict_for_others(self, block: int, kept: Collection[str] = ()) -> None:
        """A block of the free queue is to be handed out: whoever wants what it holds must have it from the host."""
        if block in self.cache:
            self._offer("evicted", [block], kept)
            self._evict(block, "it is the next out of the free queue, and is wanted for other tokens")

    def _evict(self, block: int, reason: str) -> None:
        link = self.cache.drop(block)
        self._last_used.pop(block, None)
        self._uses.pop(block, None)
        self._report(BlockEvicted(block, link.short, self.pool.ref_count[block], reason))

    def _forget_pending(self, block: int) -> None:
        """Who was to fill a block gives it up, so nobody may hit it."""
        if block in self.pending:
            self.pending.remove(block)
            self._evict(block, "it was never filled")

    def _skip(self, seq: Sequence, links: Tokens[Link], group: int) -> None:
        """What stands before the window of a hit is nobody's need."""
        tokens = tuple(token for link in links for token in link.tokens)
        null_block = self._take_null_block()
        seq.skip(null_block, len(links), group)
        if group == 0:
            seq.tokens.extend(tokens)
            seq.links.extend(links)
        self._report(PrefixSkipped(seq.seq_id, tokens, len(links), null_block, self._label(group)))

    def _hit(self, seq: Sequence, block: int, num_tokens: int, group: int = 0) -> None:
        link = self.cache.links[block]
        ref_count = self.pool.take_hit(block)
        seq.name_block(block, "device", group)
        # What another sequence fills in this step's launch is there after it, and so is what lies behind.
        computed = block not in self.pending and not seq.awaited
        if group == 0:
            (seq.tokens if computed else seq.awaited).extend(link.tokens)
            seq.links.append(link)
            seq.num_offered = len(seq.links)
        self._uses[block] = self._uses.get(block, 0) + 1
        j, label = len(seq.block_tables[group]) - 1, self._label(group)
        self._report(BlockHit(seq.seq_id, j, block, link.short, ref_count, link.tokens, num_tokens, computed, label))
        self._offer("hit", [block])

    def _propose(self, seq: Sequence, position: int, drafts: Tokens[Token], confidences: Tokens[float]) -> None:
        """Let the next launch verify these drafts, behind a token that is known."""
        seq.drafts = tuple(drafts)
        self._report(TokensDrafted(seq.seq_id, position, seq.drafts, tuple(confidences)))

    def _drop_drafts(self, seq: Sequence, keep: int, reason: str) -> None:
        """Verify only the first few of them."""
        dropped, seq.drafts = seq.drafts[keep:], seq.drafts[:keep]
        self._report(DraftsDropped(seq.seq_id, dropped, reason))

    def _verified(self, seq: Sequence, num_accepted: int) -> None:
        """Take back what was written of the drafts behind the accepted ones; its slots hold garbage."""
        size, end = self.block_size, seq.seq_len
        drafted = tuple(seq.tokens[end - seq.unverified :])
        rolled_back = range(end - seq.unverified + num_accepted, end)
        del seq.tokens[rolled_back.start :]
        seq.unverified = 0
        groups = range(len(self.windows))
        slots = [self._on_device(seq, p // size, group) * size + p % size for group in groups for p in rolled_back]
        accepted, rejected = drafted[:num_accepted], drafted[num_accepted:]
        self._report(DraftsVerified(seq.seq_id, accepted, rejected, tuple(slots), seq.seq_len))

    def _schedule(self, seq: Sequence, tokens: Tokens[Token]) -> None:
        """Let the next launch write these tokens, drafts last; their blocks are in the table."""
        seq.scheduled = tokens
        # Drafts asked for by hand wait for a launch of their own; before it, nobody may hit what it fills.
        if self.profile.publish("scheduled") and (seq.managed or not seq.drafts):
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
            if seq.drafts:
                seq.unverified, seq.drafts = len(seq.drafts), ()
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
        if self.is_stored:
            for seq in sequences:
                self._offer_computed(seq)

    def _offer_computed(self, seq: Sequence) -> None:
        """Full blocks that have just been computed, or verified, are offered once."""
        end = min(len(seq.links), seq.seq_len // self.block_size)
        row = seq.block_table
        computed = [block for block in row[seq.num_offered : end] if block is not None and block in self.cache]
        seq.num_offered = max(seq.num_offered, end)
        if computed:
            self._offer("computed", computed)

    def _offer(
        self, what: Literal["computed", "hit", "evicted"], blocks: Collection[int], kept: Collection[str] = ()
    ) -> None:
        """Record of the moments in which a cached block may be stored elsewhere, in place of nothing `kept` there. Here
        nobody listens."""

    def _publish(self, seq: Sequence) -> None:
        """Give a hash to the blocks that are full, with what the next launch writes; drafts do not count."""
        if not self.prefix_caching:
            return
        size = self.block_size
        drafts = seq.unverified + (len(seq.drafts) if seq.scheduled else 0)
        end = (seq.seq_len + len(seq.awaited) + len(seq.scheduled) - drafts) // size
        while len(seq.links) < end:
            j = len(seq.links)
            tokens = seq.tokens[j * size : (j + 1) * size]
            if len(tokens) < size:
                ahead = [*seq.awaited, *seq.scheduled]
                first = max(0, j * size - seq.seq_len)
                tokens += ahead[first : first + size - len(tokens)]
                self.pending.update(self._on_device(seq, j, group) for group in range(len(self.windows)))
            parent = seq.links[-1] if seq.links else None
            seq.links.append(hashing.link(parent, tokens, seq.salt))
            for group, skipped in enumerate(seq.num_skipped):
                if j >= skipped:
                    self._cache_block(seq, j, group)

    def _cache_block(self, seq: Sequence, j: int, group: int = 0) -> None:
        """Let a full block be found, or what the profile does when a block that is found holds the same."""
        block, link = self._on_device(seq, j, group), seq.links[j]
        cached = self.cache.find(link, group)
        entry: int = block
        findable: tuple[int, ...] = (block,)
        if cached is not None:
            # One link for equal content: what follows it is then compared in one step, not back to the first block.
            link = seq.links[j] = self.cache.links[cached]
            entry, findable = self.profile.duplicates(cached, block)
        if entry != block:
            self._collapse(seq, j, entry, group)
            return
        if cached is not None and cached not in findable:
            self._evict(cached, f"block {block} holds the same, and the map names the last writer")
        if block in findable:
            self.cache.put(block, link, group)
            self._uses[block] = 1
            told = (seq.seq_id, j, block, link.short, link.parent_short, link.tokens, self._label(group))
            self._report(BlockCached(*told))

    def _collapse(self, seq: Sequence, j: int, target: int, group: int) -> None:
        source = self._on_device(seq, j, group)
        ref_count = self.pool.take_hit(target)
        self.pool.release(source)
        seq.block_tables[group][j] = target
        queue_index = self.pool.put_back(Freed(source), self.profile.free_order)
        self._report(BlockCollapsed(seq.seq_id, j, source, target, ref_count, queue_index, self._label(group)))

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

    def _release_last(self, seq: Sequence, runs: dict[str, list[int]], group: int = 0) -> None:
        j = len(seq.block_tables[group]) - 1
        block, where, pool = self._entry(seq, j, group)
        ref_count, cached, queue_index = self._let_go(seq, j, block, pool, runs[where])
        seq.drop_last_block(self.block_size, group)
        label = self._label(group)
        if queue_index is None:
            self._report(BlockReleased(seq.seq_id, j, block, where, ref_count, seq.seq_len, label))
        else:
            self._report(BlockFreed(seq.seq_id, j, block, where, queue_index, seq.seq_len, cached, label))

    def _let_go(
        self, seq: Sequence, j: int, block: int, pool: BlockPool, run: list[int]
    ) -> tuple[int, bool, int | None]:
        """Count one name less of a block, and put it back when that was the last; `run` are those put back with it.

        Returns its ref_count, whether it can still be hit, and its place in the free queue, None if others name it.
        """
        on_device = pool is self.pool
        if on_device:
            self._forget_pending(block)
        cached = on_device and block in self.cache
        last_used = max(seq.last_scheduled, self._last_used.pop(block, 0)) if cached else 0
        ref_count = pool.release(block)
        if ref_count:
            if cached:
                self._last_used[block] = last_used
            return ref_count, cached, None
        return 0, cached, pool.put_back(Freed(block, cached, (last_used, -j), run), self.profile.free_order)

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

    def _on_device(self, seq: Sequence, j: int, group: int = 0) -> int:
        block = seq.block_tables[group][j]
        assert block is not None
        return block

    def _entry(self, seq: Sequence, j: int, group: int = 0) -> tuple[int, str, BlockPool]:
        """Logical block j's physical block, the memory it is in, and that memory's pool."""
        block = seq.block_tables[group][j]
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
