"""The block manager: what can be asked of a serving engine's cache. Each public method is one operation.

An operation that cannot be done raises a `CacheError` before it has changed anything; the changes themselves, and the
events that tell them, are in `block_changes`.
"""

from collections.abc import Callable, Collection, Iterable
from collections.abc import Sequence as Tokens
from typing import NamedTuple

from pagedviz.engine.blocks import hashing
from pagedviz.engine.blocks.hashing import Link
from pagedviz.engine.blocks.sequence import Sequence
from pagedviz.engine.host_tier.copies import HostCopies
from pagedviz.engine.log import errors
from pagedviz.engine.log.events.base import Event, Token
from pagedviz.engine.log.events.blocks import SequenceAdded, SequenceForked, SequenceFreed
from pagedviz.engine.log.snapshot import CachedBlock, Snapshot
from pagedviz.engine.log.text import sentences
from pagedviz.engine.policies.profiles import Profile
from pagedviz.engine.policies.windows import Window, agreed_prefix, below_window, most_blocks


class Need(NamedTuple):
    """What a prompt takes if it is admitted now: `hits[group]` are the cached blocks that it names there, None where
    they are out of the window, `num_hit_tokens` what they hold; each table gets `num_blocks` entries, for which
    `from_queue` blocks leave the free queue, hits among them. `alone` is how many it would need in an empty pool."""

    hits: list[list[int | None]]
    num_hit_tokens: int
    num_blocks: int
    from_queue: int
    alone: int


class BlockManager(HostCopies):
    """Maps each sequence's logical blocks to physical blocks.

    `free_blocks` is the device pool's first free queue, head first (without the null block). `auto_spill` moves the
    least recently scheduled sequences to the host when blocks run out, instead of refusing. `prefix_caching` gives full
    blocks a hash, by which a prompt finds them. There is one group of layers, and one table a sequence, for each of
    `windows`. The host tier keeps `host_chunks` copies of cached blocks.
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
        windows: Tokens[Window] = (None,),
        host_chunks: int = 0,
    ) -> None:
        super().__init__(
            block_size=block_size,
            num_blocks=num_blocks,
            free_blocks=free_blocks,
            host_blocks=host_blocks,
            profile=profile,
            prefix_caching=prefix_caching,
            report=report,
            windows=windows,
        )
        self._begin_tier(host_chunks)
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

    def need(self, tokens: Tokens[Token], salt: str | None, seq_len: int, chunk: int | None = None) -> Need:
        """What a prompt takes of which `seq_len` tokens get slots, counted from its first. Changes nothing.

        With `chunk`, it is computed in launches of so many tokens at most, and what falls out of a window on the way
        need not be there at once.
        """
        hits = self._hits(tokens, salt)
        num_hits = len(hits[0])
        num_blocks = self.blocks_for(max(seq_len, num_hits * self.block_size))
        from_queue = alone = 0
        for row, window in zip(hits, self.windows, strict=True):
            named = [block for block in row if block is not None]
            size, release = self.block_size, self.profile.window_release
            most = num_blocks if chunk is None else most_blocks(seq_len, chunk, window, size, release)
            # A hit that lies in the free queue is one free block less for the others.
            revived = sum(self.pool.ref_count[block] == 0 for block in named)
            from_queue += min(num_blocks - num_hits, max(0, most - len(named))) + revived
            alone += min(num_blocks - num_hits + len(named), most)
        from_queue += self.null_block is None and any(None in row for row in hits)
        return Need(hits, num_hits * self.block_size, num_blocks, from_queue, alone)

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
        need = self.need(tokens, salt, seq_len)
        held = {block for row in need.hits for block in row if block is not None}
        self._make_room(seq_id, need.from_queue, alone=need.alone, held=held)
        tables: list[list[int | None]] = [[] for _ in self.windows]
        seq = self.sequences[seq_id] = Sequence(seq_id, salt=salt, managed=managed, block_tables=tables)
        self._report(SequenceAdded(seq_id, len(tokens), salt))
        links: list[Link] = []
        if any(None in row for row in need.hits):
            links = self._links(tokens, salt, len(need.hits[0]))
            self._take_null_block(held)
        for group, row in enumerate(need.hits):
            num_skipped = row.count(None)
            if num_skipped:
                self._skip(seq, links[:num_skipped], group)
            for block in row[num_skipped:]:
                assert block is not None
                self._hit(seq, block, len(tokens), group)
        wanted = f"a prompt of {seq_len}" if seq_len == len(tokens) else f"the first {seq_len} of a prompt"
        reason = f"{wanted} needs ceil({seq_len} / {self.block_size}) = {need.num_blocks}"
        if need.hits[0]:
            reason += f", {len(need.hits[0])} of them cached"
        self._allocate_up_to(seq, need.num_blocks, reason)
        self._schedule(seq, tokens[need.num_hit_tokens : until])

    def extend(self, seq_id: str, tokens: Tokens[Token]) -> None:
        """Schedule more tokens, the sequence's drafts last: let go of what is out of the window, copy a shared tail,
        then take blocks for what does not fit behind it."""
        self.reserve(seq_id, len(tokens))
        seq = self.sequences[seq_id]
        if self.has_window:
            self._take_null_block()
            self._let_go_out_of_window(seq)
        if seq.seq_len % self.block_size:
            self._make_writable(seq)
        seq_len = seq.seq_len + len(tokens)
        needed = self.blocks_for(seq_len)
        if len(seq.block_table) < needed:
            reason = "its last block is full"
            if len(tokens) > 1:
                many = sentences.count(len(tokens), "token")
                reason = f"{seq.seq_len} + {many} need ceil({seq_len} / {self.block_size}) = {needed}"
            self._allocate_up_to(seq, needed, reason)
        self._schedule(seq, tokens)

    def _allocate_up_to(self, seq: Sequence, num_blocks: int, reason: str) -> None:
        for group, row in enumerate(seq.block_tables):
            while len(row) < num_blocks:
                self._allocate(seq, reason, group)

    def draft(self, seq_id: str, token: Token, drafts: Tokens[Token], confidences: Tokens[float] = ()) -> None:
        """Schedule the token that the model says next, and drafts behind it, for one launch that verifies them."""
        self.reserve(seq_id, 1 + len(drafts))
        seq = self.sequences[seq_id]
        self._propose(seq, seq.seq_len + 1, drafts, confidences)
        self.extend(seq_id, [token, *drafts])

    def propose(self, seq_id: str, drafts: Tokens[Token], confidences: Tokens[float]) -> None:
        """Keep drafts for the next launch of a sequence, behind its newest token, which is in no slot yet."""
        seq = self._find(seq_id)
        self._propose(seq, seq.seq_len + 1, drafts, confidences)

    def drop_drafts(self, seq_id: str, keep: int, reason: str) -> None:
        """Keep the first few drafts of a sequence only, if it has more. Its blocks stay its own."""
        seq = self._find(seq_id)
        if len(seq.drafts) > keep:
            self._drop_drafts(seq, keep, reason)

    def verify(self, seq_id: str, num_accepted: int) -> None:
        """Keep so many of the drafts that the last launch wrote, and take back the others. Their blocks stay for what
        comes next, or are freed at once, as the profile says."""
        seq = self._find(seq_id)
        self._verified(seq, num_accepted)
        if self.profile.publish("written"):
            self._publish(seq)
            self._offer_computed(seq)
        entries = len(seq.block_table)
        keep = self.profile.rollback(entries, self.blocks_for(seq.seq_len))
        for group, row in enumerate(seq.block_tables):
            run: dict[str, list[int]] = {"device": []}
            while len(row) > keep:
                self._release_last(seq, run, group)

    def unschedule(self, seq_id: str) -> None:
        """Take back what a sequence was scheduled; its blocks stay its own."""
        seq = self._find(seq_id)
        for j in range(seq.seq_len // self.block_size, len(seq.links)):
            for group in range(len(self.windows)):
                self._forget_pending(self._on_device(seq, j, group))
        del seq.links[seq.seq_len // self.block_size :]
        seq.scheduled = ()

    def movable(self, *seq_ids: str) -> list[int]:
        """The device blocks that a spill of these sequences together would move now."""
        sequences = [self._find(seq_id) for seq_id in seq_ids]
        return self._movable(sequences, self._residents() - set(seq_ids))

    def write(self, seq_ids: Iterable[str]) -> None:
        """One launch: each of these sequences writes what it was scheduled, in this order."""
        self._write([self.sequences[seq_id] for seq_id in seq_ids])

    def must_be_writable(self, seq_id: str) -> None:
        """Raise unless a sequence is on the device and has no drafts that wait for their launch. Moves nothing."""
        seq = self._find(seq_id)
        if not seq.is_resident:
            raise errors.NotResident(seq_id=seq_id, host_blocks=seq.host_blocks)
        self._must_be_at_rest(seq)

    def reserve(self, seq_id: str, num_tokens: int) -> None:
        """Make sure that `num_tokens` more can be written to a resident sequence, or raise. Takes no block yet."""
        self.must_be_writable(seq_id)
        seq = self.sequences[seq_id]
        seq_len, groups = seq.seq_len, len(self.windows)
        end = self.blocks_for(seq_len + num_tokens)
        needed = groups * max(0, end - len(seq.block_table))  # what rejected drafts have left is spare
        alone = groups * end
        if self.has_window:
            needed += self.null_block is None
            for group, out in enumerate(self._window_ends(seq)):
                leaving = [self._on_device(seq, j, group) for j in range(seq.num_skipped[group], out)]
                needed -= sum(self.pool.ref_count[block] == 1 for block in leaving)
                alone -= max(out, seq.num_skipped[group])
            needed = max(needed, self.null_block is None)  # taken before anything is let go
        j, filled = divmod(seq_len, self.block_size)
        if filled and self.pool.ref_count[self._on_device(seq, j)] > 1:
            needed += 1  # the first write copies the shared tail
        self._make_room(seq_id, needed, alone)

    def fork(self, parent_id: str, seq_id: str, managed: bool = False) -> None:
        """Make a sequence that shares every block of its parent, the partly filled one too. No block is taken."""
        parent = self._find(parent_id)
        if seq_id in self.sequences:
            raise errors.DuplicateSequence(seq_id=seq_id)
        if not self.profile.fork:
            raise errors.ForkUnsupported(seq_id=seq_id, profile=self.profile.name)
        self._must_have_one_table(parent)
        self._must_be_at_rest(parent)
        skipped, null_block = parent.num_skipped[0], self.null_block
        child = self.sequences[seq_id] = Sequence(
            seq_id, last_scheduled=parent.last_scheduled, salt=parent.salt, managed=managed
        )
        num_blocks = self.blocks_for(parent.seq_len)  # one that was reserved and holds nothing is not shared
        if skipped:
            assert null_block is not None
            child.skip(null_block, skipped)
            child.tokens += parent.tokens[: skipped * self.block_size]
            child.links += parent.links[:skipped]
        self._report(SequenceForked(seq_id, parent_id, num_blocks - skipped, skipped))
        for j in range(skipped, num_blocks):
            self._share(child, parent, j)

    def free(self, seq_id: str) -> None:
        """Finish a sequence: let go of its blocks from the last to the first, and forget it."""
        seq = self._find(seq_id)
        for group, row in enumerate(seq.block_tables):
            runs: dict[str, list[int]] = {"device": [], "host": []}
            while len(row) > seq.num_skipped[group]:
                self._release_last(seq, runs, group)
        del self.sequences[seq_id]
        self._report(SequenceFreed(seq_id))

    def spill(self, *seq_ids: str) -> None:
        """Move to the host all blocks of these sequences that no other resident sequence names: all, or none."""
        first, *_ = sequences = [self._find(seq_id) for seq_id in seq_ids]
        for seq in sequences:
            self._must_have_one_table(seq)
            self._must_be_at_rest(seq)
        on_device = [block for seq in sequences for block in seq.device_blocks]
        if not on_device:
            raise errors.AlreadySpilled(seq_id=first.seq_id)
        blocks = self.movable(*seq_ids)
        if not blocks and (held := self.pinned.intersection(on_device)):
            raise errors.BlockInTransfer(block=min(held))
        if not blocks:
            raise errors.SharedWithResident(seq_id=first.seq_id, blocks=on_device)
        if len(blocks) > len(self.host_pool.free_blocks):
            raise errors.NoFreeHostBlocks(
                seq_id=first.seq_id,
                needed=len(blocks),
                free=len(self.host_pool.free_blocks),
                total=self.host_pool.num_blocks,
            )
        for seq in sequences:
            own = [block for block in seq.device_blocks if block in blocks]
            self._spill_blocks(seq, own, f"{seq.seq_id} was asked to leave the device")

    def reload(self, seq_id: str) -> None:
        """Bring all of a sequence's blocks back to the device, to whichever blocks are free."""
        seq = self._find(seq_id)
        if seq.is_resident:
            raise errors.AlreadyResident(seq_id=seq_id)
        self._make_room(seq_id, len(seq.host_blocks), alone=len(seq.block_table) - seq.num_skipped[0])
        reloaded = [j for j, host_block in enumerate(seq.host_table) if host_block is not None]
        for host_block in seq.host_blocks:
            self._reload_block(seq, host_block)
        for j in reloaded:
            if j < len(seq.links) and self.cache.find(seq.links[j]) is None:
                self._cache_block(seq, j)

    def longest_prefix(self, tokens: Tokens[Token], salt: str | None = None) -> list[int | None]:
        """The cached blocks that a prompt would name now in group 0, from its block 0 on. Changes nothing."""
        return self._hits(tokens, salt)[0]

    def _hits(self, tokens: Tokens[Token], salt: str | None) -> list[list[int | None]]:
        """By group, what a prompt names of what is cached, as much as all groups agree on."""
        if not self.prefix_caching:
            return [[] for _ in self.windows]
        if self.windows == (None,):
            return [list(self.cache.longest_prefix(tokens, salt))]
        links = self._links(tokens, salt, (len(tokens) - 1) // self.block_size)
        found = [[self.cache.find(link, group) for link in links] for group in range(len(self.windows))]
        agreed = agreed_prefix(found, self.windows, self.block_size)
        ends = [below_window(agreed * self.block_size, window, self.block_size) for window in self.windows]
        return [[None if j < end else row[j] for j in range(agreed)] for row, end in zip(found, ends, strict=True)]

    def _links(self, tokens: Tokens[Token], salt: str | None, num_blocks: int) -> list[Link]:
        """What the first whole blocks of a prompt hold."""
        size, links = self.block_size, list[Link]()
        for start in range(0, num_blocks * size, size):
            links.append(hashing.link(links[-1] if links else None, tokens[start : start + size], salt))
        return links

    def reset_prefix_cache(self) -> None:
        """Forget every cached prefix, as after new weights. Refused while a block is in use, as vLLM and SGLang do.

        A sequence in use goes on with K and V of before, so a hash that it publishes later would be a lie.
        """
        in_use = self.pool.num_blocks - (self.null_block is not None) - len(self.pool.free_blocks)
        if self.sequences or self.pinned:
            raise errors.BlocksInUse(in_use=in_use + self.host_pool.num_blocks - len(self.host_pool.free_blocks))
        reason = "all cached prefixes were reset"
        for block in list(self.cache.links):
            self._evict(block, reason)
        if self.tier is not None:
            self.tier.clear(reason)

    def snapshot(self) -> Snapshot:
        """The state now, frozen."""
        sequences = self.sequences.values()
        return Snapshot(
            block_size=self.block_size,
            num_blocks=self.pool.num_blocks,
            host_blocks=self.host_pool.num_blocks,
            null_block=self.null_block,
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
                block: CachedBlock(link.short, link.parent_short, link.tokens, link.salt, self.cache.groups[block])
                for block, link in self.cache.links.items()
            },
            windows=self.windows,
            group_tables=tuple(
                {seq.seq_id: tuple(seq.block_tables[group]) for seq in sequences}
                for group in range(1, len(self.windows))
            ),
            drafted={seq.seq_id: seq.drafts for seq in sequences if seq.drafts},
            unverified={seq.seq_id: seq.unverified for seq in sequences if seq.unverified},
            tier=self.tier.snapshot() if self.tier else None,
        )

    # --- helpers ---

    def _must_be_at_rest(self, seq: Sequence) -> None:
        if seq.scheduled and seq.drafts:
            raise errors.DraftsPending(seq_id=seq.seq_id, drafts=len(seq.drafts))

    def _must_have_one_table(self, seq: Sequence) -> None:
        if len(self.windows) > 1:
            raise errors.SeveralTables(seq_id=seq.seq_id, groups=len(self.windows))

    def blocks_for(self, num_tokens: int) -> int:
        """How many blocks so many tokens fill, the last perhaps in part."""
        return -(-num_tokens // self.block_size)

    def _residents(self) -> set[str]:
        return {seq.seq_id for seq in self.sequences.values() if seq.is_resident}

    def _movable(self, sequences: Iterable[Sequence], residents: set[str], held: Collection[int] = ()) -> list[int]:
        """Device blocks of `sequences` that none of `residents` names, that no transfer is at and that are not `held`,
        in table order."""
        kept = {block for other in residents for block in self.sequences[other].device_blocks} | set(held) | self.pinned
        return list(dict.fromkeys(block for seq in sequences for block in seq.device_blocks if block not in kept))

    def _make_room(self, seq_id: str, needed: int, alone: int, held: Collection[int] = ()) -> None:
        """Raise unless `needed` blocks are free, or come free by spilling the least recently scheduled sequences.

        `alone` is what the sequence takes with nobody else in the pool: more than the pool has can never fit. Blocks
        that it is about to hit are `held`, so they stay on the device.
        """
        free = len(self.pool.free_blocks)
        if needed <= free:
            return
        total = self.total
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
            if victim.seq_id == seq_id or victim.managed or victim.drafts:
                continue
            movable = self._movable([victim], residents - {victim.seq_id}, held)
            blocks = [block for block in movable if block not in moved]
            if len(blocks) > host_room:
                continue
            residents.discard(victim.seq_id)  # even if all of its blocks must wait for a later victim that shares them
            host_room -= len(blocks)
            moved.update(blocks)
            plan.append((victim, blocks))
        return plan if len(moved) >= missing else None
