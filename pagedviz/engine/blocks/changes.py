"""The atomic changes of a paged cache, and the state that they change. Each reports one event when it is done.

All that belongs together is changed before the report, so the invariants hold at every one of them. Nothing is refused
here: the caller has made sure of room.
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

Occasion = Literal["computed", "hit", "evicted"]
# Told on which occasion cached blocks may be stored elsewhere, and the hashes that must be kept there meanwhile.
Listener = Callable[[Occasion, Collection[int], Collection[str]], None]


class BlockChanges:
    """Two pools, the sequences with their tables, and what may be hit. `BlockManager` decides, this does.

    `pending` blocks have a hash already and will hold their tokens after this step's launch. The player counts
    `engine_step` up; a written token stamps it on its sequence. The `listener` hears when a cached block could be
    stored elsewhere.
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
        self.listener: Listener | None = None
        self.engine_step = 0
        self.report = report
        self.last_used: dict[int, int] = {}  # of cached blocks in use: when a sequence that let go was last scheduled
        self.uses: dict[
            int, int
        ] = {}  # of cached blocks: how many sequences used each, the one that computed it included

    @property
    def total(self) -> int:
        """Device blocks that sequences can have: without the null block, also one that is still to be taken."""
        return self.pool.num_blocks - (self.null_block is not None or self.has_window)

    def blocks_for(self, num_tokens: int) -> int:
        """How many blocks so many tokens fill, the last perhaps in part."""
        return -(-num_tokens // self.block_size)

    def find(self, seq_id: str) -> Sequence:
        """The sequence of that name; raises UnknownSequence."""
        if seq_id not in self.sequences:
            raise errors.UnknownSequence(seq_id=seq_id, known=", ".join(self.sequences) or "none at all")
        return self.sequences[seq_id]

    def _label(self, group: int) -> int | None:
        """A group as an event tells it: not at all where there is only one."""
        return group if len(self.windows) > 1 else None

    def allocate(self, seq: Sequence, reason: str, group: int = 0) -> None:
        block = self.take()
        seq.name_block(block, "device", group)
        j = len(seq.block_tables[group]) - 1
        label = self._label(group)
        self.report(BlockAllocated(seq_id=seq.seq_id, logical_block=j, block=block, reason=reason, group=label))

    def take_null_block(self, held: Collection[int] = ()) -> int:
        """The null block's id; the first time in a profile that has none, a free block becomes it for good, but none of
        those `held`."""
        if self.null_block is None:
            block = next(block for block in self.pool.free_blocks if block not in held)
            self.evict_for_others(block)
            self.pool.free_blocks.remove(block)
            self.null_block = block
            self.report(NullBlockTaken(block=block))
        return self.null_block

    def let_go_out_of_window(self, seq: Sequence) -> None:
        """Let go of the blocks that no token to come looks at, tail first; their entries name the null block."""
        for group, end in enumerate(self.window_ends(seq)):
            row, run = seq.block_tables[group], list[int]()
            for j in range(end - 1, seq.num_skipped[group] - 1, -1):
                block = self.on_device(seq, j, group)
                ref_count, cached, queue_index = self._let_go(seq, j, block, self.pool, run)
                row[j] = null_block = self.take_null_block()
                self.report(
                    BlockOutOfWindow(
                        seq_id=seq.seq_id,
                        logical_block=j,
                        block=block,
                        null_block=null_block,
                        ref_count=ref_count,
                        queue_index=queue_index,
                        cached=cached,
                        first_seen=first_seen(seq.seq_len, self.windows[group]),
                        group=self._label(group),
                    )
                )
            seq.num_skipped[group] = max(end, seq.num_skipped[group])

    def window_ends(self, seq: Sequence) -> list[int]:
        """By group, how many leading entries need not be there for the tokens to come."""
        return [
            0 if window is None else self.profile.window_release(seq.seq_len, window, self.block_size)
            for window in self.windows
        ]

    def take(self) -> int:
        """The next block out of the free queue. If it is cached, it can no longer be hit."""
        block = self.pool.free_blocks.first
        self.evict_for_others(block)
        return self.pool.take()

    def evict_for_others(self, block: int, kept: Collection[str] = ()) -> None:
        """A block of the free queue goes out for other tokens: what it held can then come from the host only."""
        if block in self.cache:
            self._offer("evicted", [block], kept)
            self.evict(block, "it is the next out of the free queue, and is wanted for other tokens")

    def evict(self, block: int, reason: str) -> None:
        link = self.cache.drop(block)
        self.last_used.pop(block, None)
        self.uses.pop(block, None)
        ref_count = self.pool.ref_count[block]
        self.report(BlockEvicted(block=block, block_hash=link.short, ref_count=ref_count, reason=reason))

    def forget_pending(self, block: int) -> None:
        """A block that no launch will fill any more can no longer be hit."""
        if block in self.pending:
            self.pending.remove(block)
            self.evict(block, "it was never filled")

    def skip(self, seq: Sequence, links: Tokens[Link], group: int) -> None:
        """Name the null block for the blocks before the window of a hit: no token to come looks at them."""
        tokens = tuple(token for link in links for token in link.tokens)
        null_block = self.take_null_block()
        seq.skip(null_block, len(links), group)
        if group == 0:
            seq.tokens.extend(tokens)
            seq.links.extend(links)
        self.report(
            PrefixSkipped(
                seq_id=seq.seq_id,
                tokens=tokens,
                num_blocks=len(links),
                null_block=null_block,
                group=self._label(group),
            )
        )

    def hit(self, seq: Sequence, block: int, num_tokens: int, group: int = 0) -> None:
        link = self.cache.links[block]
        ref_count = self.pool.take_hit(block)
        seq.name_block(block, "device", group)
        # What another sequence fills in this step's launch is there after it, and so is what lies behind.
        computed = block not in self.pending and not seq.awaited
        if group == 0:
            (seq.tokens if computed else seq.awaited).extend(link.tokens)
            seq.links.append(link)
            seq.num_offered = len(seq.links)
        self.uses[block] = self.uses.get(block, 0) + 1
        self.report(
            BlockHit(
                seq_id=seq.seq_id,
                logical_block=len(seq.block_tables[group]) - 1,
                block=block,
                block_hash=link.short,
                ref_count=ref_count,
                tokens=link.tokens,
                num_tokens=num_tokens,
                computed=computed,
                group=self._label(group),
            )
        )
        self._offer("hit", [block])

    def propose(self, seq: Sequence, position: int, drafts: Tokens[Token], confidences: Tokens[float]) -> None:
        """Let the next launch verify these drafts, behind a token that is known."""
        seq.drafts = tuple(drafts)
        self.report(
            TokensDrafted(seq_id=seq.seq_id, position=position, tokens=seq.drafts, confidences=tuple(confidences))
        )

    def drop_drafts(self, seq: Sequence, keep: int, reason: str) -> None:
        """Verify only the first few of them."""
        dropped, seq.drafts = seq.drafts[keep:], seq.drafts[:keep]
        self.report(DraftsDropped(seq_id=seq.seq_id, tokens=dropped, reason=reason))

    def verified(self, seq: Sequence, num_accepted: int) -> None:
        """Take back what was written of the drafts behind the accepted ones; its slots hold garbage."""
        size, end = self.block_size, seq.seq_len
        drafted = tuple(seq.tokens[end - seq.unverified :])
        rolled_back = range(end - seq.unverified + num_accepted, end)
        del seq.tokens[rolled_back.start :]
        seq.unverified = 0
        groups = range(len(self.windows))
        slots = [self.on_device(seq, p // size, group) * size + p % size for group in groups for p in rolled_back]
        self.report(
            DraftsVerified(
                seq_id=seq.seq_id,
                accepted=drafted[:num_accepted],
                rejected=drafted[num_accepted:],
                slots=tuple(slots),
                num_tokens=seq.seq_len,
            )
        )

    def schedule(self, seq: Sequence, tokens: Tokens[Token]) -> None:
        """Let the next launch write these tokens, drafts last; their blocks are in the table."""
        seq.scheduled = tokens
        # Drafts asked for by hand wait for a launch of their own; before it, no prompt may hit what it fills.
        if self.profile.publish("scheduled") and (seq.managed or not seq.drafts):
            self.publish(seq)

    def write(self, sequences: Tokens[Sequence]) -> None:
        """One launch: every sequence writes what it was scheduled."""
        size, writes = self.block_size, []
        for seq in sequences:
            seq.tokens += seq.awaited
            position, tokens = seq.seq_len, tuple(seq.scheduled)
            positions = range(position, position + len(tokens))
            slots = tuple([self.on_device(seq, p // size) * size + p % size for p in positions])
            seq.tokens += tokens
            seq.scheduled, seq.awaited, seq.last_scheduled = (), [], self.engine_step
            if seq.drafts:
                seq.unverified, seq.drafts = len(seq.drafts), ()
            writes.append((seq.seq_id, position, tokens, slots))
        self.pending.clear()
        if len(writes) > 1:
            seq_ids, positions_of, tokens_of, slots_of = zip(*writes, strict=True)
            self.report(
                BatchWritten(
                    seq_ids=seq_ids,
                    positions=positions_of,
                    tokens=tokens_of,
                    slots=slots_of,
                    engine_step=self.engine_step,
                )
            )
        elif len(tokens) > 1:
            self.report(
                TokensWritten(
                    seq_id=seq.seq_id, position=position, tokens=tokens, slots=slots, engine_step=self.engine_step
                )
            )
        else:
            block, offset = divmod(slots[0], size)
            self.report(
                TokenWritten(
                    seq_id=seq.seq_id,
                    position=position,
                    token=tokens[0],
                    block=block,
                    offset=offset,
                    slot=slots[0],
                    engine_step=self.engine_step,
                )
            )
        if self.profile.publish("written"):
            for seq in sequences:
                self.publish(seq)
        if self.listener:
            for seq in sequences:
                self.offer_computed(seq)

    def offer_computed(self, seq: Sequence) -> None:
        """Full blocks that have just been computed, or verified, are offered once."""
        end = min(len(seq.links), seq.seq_len // self.block_size)
        row = seq.block_table
        computed = [block for block in row[seq.num_offered : end] if block is not None and block in self.cache]
        seq.num_offered = max(seq.num_offered, end)
        if computed:
            self._offer("computed", computed)

    def _offer(self, occasion: Occasion, blocks: Collection[int], kept: Collection[str] = ()) -> None:
        if self.listener:
            self.listener(occasion, blocks, kept)

    def publish(self, seq: Sequence) -> None:
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
                self.pending.update(self.on_device(seq, j, group) for group in range(len(self.windows)))
            parent = seq.links[-1] if seq.links else None
            seq.links.append(hashing.link(parent, tokens, seq.salt))
            for group, skipped in enumerate(seq.num_skipped):
                if j >= skipped:
                    self.cache_block(seq, j, group)

    def cache_block(self, seq: Sequence, j: int, group: int = 0) -> None:
        """Let a full block be found, or what the profile does when a block that is found holds the same."""
        block, link = self.on_device(seq, j, group), seq.links[j]
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
            self.evict(cached, f"block {block} holds the same, and the map names the last writer")
        if block in findable:
            self.cache.put(block, link, group)
            self.uses[block] = 1
            self.report(
                BlockCached(
                    seq_id=seq.seq_id,
                    logical_block=j,
                    block=block,
                    block_hash=link.short,
                    parent_hash=link.parent_short,
                    tokens=link.tokens,
                    group=self._label(group),
                )
            )

    def _collapse(self, seq: Sequence, j: int, target: int, group: int) -> None:
        source = self.on_device(seq, j, group)
        ref_count = self.pool.take_hit(target)
        self.pool.release(source)
        seq.block_tables[group][j] = target
        queue_index = self.pool.put_back(Freed(source), self.profile.free_order)
        self.report(
            BlockCollapsed(
                seq_id=seq.seq_id,
                logical_block=j,
                source=source,
                target=target,
                ref_count=ref_count,
                queue_index=queue_index,
                group=self._label(group),
            )
        )

    def share(self, child: Sequence, parent: Sequence, j: int) -> None:
        block, where, pool = self._entry(parent, j)
        ref_count = pool.share(block)
        tokens = parent.tokens[j * self.block_size : (j + 1) * self.block_size]
        child.name_block(block, where)
        child.tokens += tokens
        child.links += parent.links[j : j + 1]
        self.report(
            BlockShared(
                seq_id=child.seq_id,
                parent=parent.seq_id,
                logical_block=j,
                block=block,
                where=where,
                ref_count=ref_count,
                tokens=tuple(tokens),
            )
        )

    def make_writable(self, seq: Sequence) -> None:
        j = seq.seq_len // self.block_size
        source = self.on_device(seq, j)
        if self.pool.ref_count[source] == 1:
            return  # the last sharer writes in place
        ref_count = self.pool.ref_count[source]
        self.report(WriteStopped(seq_id=seq.seq_id, logical_block=j, block=source, ref_count=ref_count))
        target = self.take()
        self.pinned.add(target)
        filled = seq.seq_len % self.block_size
        self.report(BlockCopied(seq_id=seq.seq_id, logical_block=j, source=source, target=target, num_slots=filled))
        seq.block_table[j] = target
        self.pinned.remove(target)
        ref_count = self.pool.release(source)
        self.report(
            EntryRewritten(seq_id=seq.seq_id, logical_block=j, source=source, target=target, ref_count=ref_count)
        )

    def release_last(self, seq: Sequence, runs: dict[str, list[int]], group: int = 0) -> None:
        j = len(seq.block_tables[group]) - 1
        block, where, pool = self._entry(seq, j, group)
        ref_count, cached, queue_index = self._let_go(seq, j, block, pool, runs[where])
        seq.drop_last_block(self.block_size, group)
        if queue_index is None:
            self.report(
                BlockReleased(
                    seq_id=seq.seq_id,
                    logical_block=j,
                    block=block,
                    where=where,
                    ref_count=ref_count,
                    num_tokens=seq.seq_len,
                    group=self._label(group),
                )
            )
        else:
            self.report(
                BlockFreed(
                    seq_id=seq.seq_id,
                    logical_block=j,
                    block=block,
                    where=where,
                    queue_index=queue_index,
                    num_tokens=seq.seq_len,
                    cached=cached,
                    group=self._label(group),
                )
            )

    def _let_go(
        self, seq: Sequence, j: int, block: int, pool: BlockPool, run: list[int]
    ) -> tuple[int, bool, int | None]:
        """Count one name less of a block, and put it back when that was the last; `run` are those put back with it.

        Returns its ref_count, whether it can still be hit, and its place in the free queue, None if others name it.
        """
        on_device = pool is self.pool
        if on_device:
            self.forget_pending(block)
        cached = on_device and block in self.cache
        last_used = max(seq.last_scheduled, self.last_used.pop(block, 0)) if cached else 0
        ref_count = pool.release(block)
        if ref_count:
            if cached:
                self.last_used[block] = last_used
            return ref_count, cached, None
        return 0, cached, pool.put_back(Freed(block, cached, (last_used, -j), run), self.profile.free_order)

    def spill_blocks(self, seq: Sequence, blocks: list[int], reason: str) -> None:
        for block in blocks:
            if block in self.cache:
                self.evict(block, "it leaves the device")
            host_block = self.host_pool.take()
            self.host_pool.ref_count[host_block] = self.pool.ref_count[block]
            self.pool.ref_count[block] = 0
            sharers = self._move_entries(block, "device", host_block)
            queue_index = self.pool.put_back(Freed(block), self.profile.free_order)
            self.report(
                BlockSpilled(
                    seq_id=seq.seq_id,
                    seq_ids=sharers,
                    block=block,
                    host_block=host_block,
                    queue_index=queue_index,
                    reason=reason,
                )
            )

    def reload_block(self, seq: Sequence, host_block: int) -> None:
        block = self.take()
        self.pool.ref_count[block] = self.host_pool.ref_count[host_block]
        self.host_pool.ref_count[host_block] = 0
        sharers = self._move_entries(host_block, "host", block)
        queue_index = self.host_pool.put_back(Freed(host_block), self.profile.free_order)
        self.report(
            BlockReloaded(
                seq_id=seq.seq_id, seq_ids=sharers, block=block, host_block=host_block, queue_index=queue_index
            )
        )

    def on_device(self, seq: Sequence, j: int, group: int = 0) -> int:
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
        """Point every entry that names `block` at `target` in the other memory; return the sequences that name it."""
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
