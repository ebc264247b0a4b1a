"""The block manager: what can be asked of a serving engine's cache. Each public method is one operation.

An operation that cannot be done raises a `CacheError` before it has changed anything; the changes themselves, and the
events that report them, are in `blocks/changes/`.
"""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Tokens

from pagedviz.engine.blocks.changes import allocation, caching, transfers, windows, writing
from pagedviz.engine.blocks.changes import drafts as draft_changes
from pagedviz.engine.blocks.freezing import freeze
from pagedviz.engine.blocks.hashing import Link
from pagedviz.engine.blocks.sequence import Sequence
from pagedviz.engine.blocks.state import CacheState
from pagedviz.engine.host_tier.copies import HostCopies, How
from pagedviz.engine.log import errors
from pagedviz.engine.log.events.base import Event, Token
from pagedviz.engine.log.events.blocks import SequenceAdded, SequenceForked, SequenceFreed
from pagedviz.engine.log.host_snapshot import Transfer
from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.engine.log.text import sentences
from pagedviz.engine.manager import demand
from pagedviz.engine.manager.demand import BlockDemand
from pagedviz.engine.manager.room import Room
from pagedviz.engine.policies.profiles import Profile
from pagedviz.engine.policies.windows import Window


class BlockManager:
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
        self.state = state = CacheState(
            block_size=block_size,
            num_blocks=num_blocks,
            free_blocks=free_blocks,
            host_blocks=host_blocks,
            profile=profile,
            prefix_caching=prefix_caching,
            report=report,
            windows=windows,
        )
        self.block_size, self.windows, self.profile = block_size, state.windows, profile
        self.pool, self.host_pool = state.pool, state.host_pool
        self.cache, self.sequences = state.cache, state.sequences
        self.copies = HostCopies(state, host_chunks, report) if host_chunks else None
        self._room = Room(state, auto_spill)
        self._report = report

    @property
    def engine_step(self) -> int:
        """The step that runs; a written token stamps it on its sequence."""
        return self.state.engine_step

    @engine_step.setter
    def engine_step(self, engine_step: int) -> None:
        self.state.engine_step = engine_step

    @property
    def total(self) -> int:
        """See `CacheState.total`."""
        return self.state.total

    def blocks_for(self, num_tokens: int) -> int:
        """See `CacheState.blocks_for`."""
        return self.state.blocks_for(num_tokens)

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

    def demand(self, tokens: Tokens[Token], salt: str | None, seq_len: int, chunk: int | None = None) -> BlockDemand:
        """What a prompt takes if it is admitted now; see `demand.of_prompt`. Changes nothing."""
        return demand.of_prompt(self.state, tokens, salt, seq_len, chunk)

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
        prompt = self.demand(tokens, salt, seq_len)
        held = {block for row in prompt.hits for block in row if block is not None}
        self._room.make(seq_id, prompt.from_queue, alone=prompt.alone, held=held)
        tables: list[list[int | None]] = [[] for _ in self.windows]
        seq = self.sequences[seq_id] = Sequence(seq_id, salt=salt, managed=managed, block_tables=tables)
        self._report(SequenceAdded(seq_id=seq_id, num_tokens=len(tokens), salt=salt))
        links: list[Link] = []
        if any(None in row for row in prompt.hits):
            links = demand.links(tokens, salt, self.block_size, len(prompt.hits[0]))
            windows.take_null_block(self.state, held)
        for group, row in enumerate(prompt.hits):
            num_skipped = row.count(None)
            if num_skipped:
                windows.skip(self.state, seq, links[:num_skipped], group)
            for block in row[num_skipped:]:
                assert block is not None
                caching.hit(self.state, seq, block, len(tokens), group)
        wanted = f"a prompt of {seq_len}" if seq_len == len(tokens) else f"the first {seq_len} of a prompt"
        reason = f"{wanted} needs ceil({seq_len} / {self.block_size}) = {prompt.num_blocks}"
        if prompt.hits[0]:
            reason += f", {len(prompt.hits[0])} of them cached"
        allocation.allocate_up_to(self.state, seq, prompt.num_blocks, reason)
        writing.schedule(self.state, seq, tokens[prompt.num_hit_tokens : until])

    def extend(self, seq_id: str, tokens: Tokens[Token]) -> None:
        """Schedule more tokens, the sequence's drafts last: let go of what is out of the window, copy a shared tail,
        then take blocks for what does not fit behind it."""
        self.reserve(seq_id, len(tokens))
        seq = self.sequences[seq_id]
        if self.state.has_window:
            windows.take_null_block(self.state)
            windows.let_go(self.state, seq)
        if seq.seq_len % self.block_size:
            allocation.make_writable(self.state, seq)
        seq_len = seq.seq_len + len(tokens)
        needed = self.state.blocks_for(seq_len)
        if len(seq.block_table) < needed:
            reason = "its last block is full"
            if len(tokens) > 1:
                many = sentences.count(len(tokens), "token")
                reason = f"{seq.seq_len} + {many} need ceil({seq_len} / {self.block_size}) = {needed}"
            allocation.allocate_up_to(self.state, seq, needed, reason)
        writing.schedule(self.state, seq, tokens)

    def draft(self, seq_id: str, token: Token, drafts: Tokens[Token], confidences: Tokens[float] = ()) -> None:
        """Schedule the token that the model says next, and drafts behind it, for one launch that verifies them."""
        self.reserve(seq_id, 1 + len(drafts))
        seq = self.sequences[seq_id]
        draft_changes.propose(self.state, seq, seq.seq_len + 1, drafts, confidences)
        self.extend(seq_id, [token, *drafts])

    def propose(self, seq_id: str, drafts: Tokens[Token], confidences: Tokens[float]) -> None:
        """Keep drafts for the next launch of a sequence, behind its newest token, which is in no slot yet."""
        seq = self.state.find(seq_id)
        draft_changes.propose(self.state, seq, seq.seq_len + 1, drafts, confidences)

    def drop_drafts(self, seq_id: str, keep: int, reason: str) -> None:
        """Keep the first few drafts of a sequence only, if it has more. Its blocks stay its own."""
        seq = self.state.find(seq_id)
        if len(seq.drafts) > keep:
            draft_changes.drop(self.state, seq, keep, reason)

    def verify(self, seq_id: str, num_accepted: int) -> None:
        """Keep so many of the drafts that the last launch wrote, and take back the others. Their blocks stay for what
        comes next, or are freed at once, as the profile says."""
        seq = self.state.find(seq_id)
        draft_changes.verify(self.state, seq, num_accepted)
        if self.profile.publish("written"):
            caching.publish(self.state, seq)
            caching.offer_computed(self.state, seq)
        entries = len(seq.block_table)
        keep = self.profile.rollback(entries, self.state.blocks_for(seq.seq_len))
        for group in range(len(self.windows)):
            allocation.release_behind(self.state, seq, keep, group)

    def unschedule(self, seq_id: str) -> None:
        """Take back what a sequence was scheduled; its blocks stay its own."""
        writing.unschedule(self.state, self.state.find(seq_id))

    def movable(self, *seq_ids: str) -> list[int]:
        """The device blocks that a spill of these sequences together would move now."""
        sequences = [self.state.find(seq_id) for seq_id in seq_ids]
        return self._room.movable(sequences, self._room.residents() - set(seq_ids))

    def must_be_there(self, seq_id: str) -> None:
        """Raise unless there is such a sequence."""
        self.state.find(seq_id)

    def write(self, seq_ids: Iterable[str]) -> None:
        """One launch: each of these sequences writes what it was scheduled, in this order."""
        writing.write(self.state, [self.sequences[seq_id] for seq_id in seq_ids])

    def must_be_writable(self, seq_id: str) -> None:
        """Raise unless a sequence is on the device and has no drafts that wait for their launch. Moves nothing."""
        seq = self.state.find(seq_id)
        if not seq.is_resident:
            raise errors.NotResident(seq_id=seq_id, host_blocks=seq.host_blocks)
        self._must_be_at_rest(seq)

    def reserve(self, seq_id: str, num_tokens: int) -> None:
        """Make sure that `num_tokens` more can be written to a resident sequence, or raise. Takes no block yet."""
        self.must_be_writable(seq_id)
        seq = self.sequences[seq_id]
        needed, alone = demand.of_more(self.state, seq, num_tokens)
        self._room.make(seq_id, needed, alone)

    def fork(self, parent_id: str, seq_id: str, managed: bool = False) -> None:
        """Make a sequence that shares every block of its parent, the partly filled one too. No block is taken."""
        parent = self.state.find(parent_id)
        if seq_id in self.sequences:
            raise errors.DuplicateSequence(seq_id=seq_id)
        if not self.profile.fork:
            raise errors.ForkUnsupported(seq_id=seq_id, profile=self.profile.name)
        self._must_have_one_table(parent)
        self._must_be_at_rest(parent)
        skipped, null_block = parent.num_skipped[0], self.state.null_block
        child = self.sequences[seq_id] = Sequence(
            seq_id, last_scheduled=parent.last_scheduled, salt=parent.salt, managed=managed
        )
        num_blocks = self.state.blocks_for(parent.seq_len)  # one that was reserved and holds nothing is not shared
        if skipped:
            assert null_block is not None
            child.skip(null_block, skipped)
            child.tokens += parent.tokens[: skipped * self.block_size]
            child.links += parent.links[:skipped]
        self._report(
            SequenceForked(seq_id=seq_id, parent=parent_id, num_blocks=num_blocks - skipped, num_skipped=skipped)
        )
        for j in range(skipped, num_blocks):
            allocation.share(self.state, child, parent, j)

    def free(self, seq_id: str) -> None:
        """Finish a sequence: let go of its blocks from the last to the first, and forget it."""
        seq = self.state.find(seq_id)
        for group, num_skipped in enumerate(seq.num_skipped):
            allocation.release_behind(self.state, seq, num_skipped, group)
        del self.sequences[seq_id]
        self._report(SequenceFreed(seq_id=seq_id))

    def spill(self, *seq_ids: str) -> None:
        """Move to the host all blocks of these sequences that no other resident sequence names: all, or none."""
        first, *_ = sequences = [self.state.find(seq_id) for seq_id in seq_ids]
        for seq in sequences:
            self._must_have_one_table(seq)
            self._must_be_at_rest(seq)
        on_device = [block for seq in sequences for block in seq.device_blocks]
        if not on_device:
            raise errors.AlreadySpilled(seq_id=first.seq_id)
        blocks = self.movable(*seq_ids)
        if not blocks and (held := self.state.pinned.intersection(on_device)):
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
            transfers.spill(self.state, seq, own, f"{seq.seq_id} was asked to leave the device")

    def reload(self, seq_id: str) -> None:
        """Bring all of a sequence's blocks back to the device, to whichever blocks are free."""
        seq = self.state.find(seq_id)
        if seq.is_resident:
            raise errors.AlreadyResident(seq_id=seq_id)
        self._room.make(seq_id, len(seq.host_blocks), alone=len(seq.block_table) - seq.num_skipped[0])
        reloaded = [j for j, host_block in enumerate(seq.host_table) if host_block is not None]
        for host_block in seq.host_blocks:
            transfers.reload(self.state, seq, host_block)
        for j in reloaded:
            if j < len(seq.links) and self.cache.find(seq.links[j]) is None:
                caching.cache_block(self.state, seq, j)

    def longest_prefix(self, tokens: Tokens[Token], salt: str | None = None) -> list[int | None]:
        """The cached blocks that a prompt would name now in group 0, from its block 0 on. Changes nothing."""
        return demand.hits(self.state, tokens, salt)[0]

    def reset_prefix_cache(self) -> None:
        """Forget every cached prefix, as after new weights. Refused while a block is in use, as vLLM and SGLang do.

        A sequence in use goes on with K and V of before, so a hash that it publishes later would be a lie.
        """
        in_use = self.pool.num_blocks - (self.state.null_block is not None) - len(self.pool.free_blocks)
        if self.sequences or self.state.pinned:
            raise errors.BlocksInUse(in_use=in_use + self.host_pool.num_blocks - len(self.host_pool.free_blocks))
        reason = "all cached prefixes were reset"
        for block in list(self.cache.links):
            caching.evict(self.state, block, reason)
        if self.copies:
            self.copies.tier.clear(reason)

    def snapshot(self) -> Snapshot:
        """The state now, frozen."""
        return freeze(self.state, self.copies.tier.snapshot() if self.copies else None)

    # --- the host tier ---

    @property
    def host_tier(self) -> HostCopies:
        """The copies on the host; raises NoHostTier where there is no room for any."""
        if self.copies is None:
            raise errors.NoHostTier()
        return self.copies

    def store(self, seq_id: str) -> Transfer:
        """See `HostCopies.store`."""
        return self.host_tier.store(seq_id)

    def load(self, tokens: Tokens[Token], salt: str | None = None) -> None:
        """See `HostCopies.load`."""
        self.host_tier.load(tokens, salt)

    def fetch(self, tokens: Tokens[Token], salt: str | None) -> bool:
        """See `HostCopies.fetch`; without a host tier nothing is on its way."""
        return self.copies is not None and self.copies.fetch(tokens, salt)

    def end_transfer(self, transfer_id: int, how: How) -> None:
        """See `HostCopies.end_transfer`."""
        self.host_tier.end_transfer(transfer_id, how)

    @property
    def is_transferring(self) -> bool:
        """A copy to or from the host has not ended."""
        return self.copies is not None and self.copies.is_transferring

    def finish_transfers(self) -> None:
        """All copies that were begun have come to their end."""
        if self.copies:
            self.copies.finish_transfers()

    # --- helpers ---

    def _must_be_at_rest(self, seq: Sequence) -> None:
        if seq.scheduled and seq.drafts:
            raise errors.DraftsPending(seq_id=seq.seq_id, drafts=len(seq.drafts))

    def _must_have_one_table(self, seq: Sequence) -> None:
        if len(self.windows) > 1:
            raise errors.SeveralTables(seq_id=seq.seq_id, groups=len(self.windows))
