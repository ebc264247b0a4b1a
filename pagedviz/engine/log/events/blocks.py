"""Events of blocks and of the sequences that name them: taken, shared, hit, written, copied, freed."""

from dataclasses import dataclass

from pagedviz.engine.log.events.base import Event, InGroup, Token, Write
from pagedviz.engine.log.text import sentences


@dataclass(frozen=True)
class SequenceAdded(Event):
    """{seq_id} arrived with a prompt of {num_tokens:token}. Its block table is empty."""

    seq_id: str
    num_tokens: int
    salt: str | None = None


@dataclass(frozen=True)
class SequenceForked(Event):
    """{seq_id} was forked from {parent}. It will name {parent}'s {num_blocks:block} and takes no block of its
    own{skipping}."""

    seq_id: str
    parent: str
    num_blocks: int
    num_skipped: int = 0  # entries that name the null block, as the parent's do

    @property
    def phrases(self) -> dict[str, str]:
        if not self.num_skipped:
            return {"skipping": ""}
        num_blocks = sentences.count(self.num_skipped, "block")
        return {"skipping": f". Before them, the null block stands for {num_blocks} out of the window"}


@dataclass(frozen=True)
class BlockAllocated(InGroup, Event):
    """{seq_id} took block {block}, the next out of the free queue, as its logical block {logical_block}{of_group}:
    {reason}."""

    seq_id: str
    logical_block: int
    block: int
    reason: str
    group: int | None = None


@dataclass(frozen=True)
class BlockShared(Event):
    """{seq_id} named {where} block {block} as its logical block {logical_block}, as {parent} does. Nothing was copied;
    the block's ref_count is now {ref_count}."""

    seq_id: str
    parent: str
    logical_block: int
    block: int
    where: str
    ref_count: int
    tokens: tuple[Token, ...]


@dataclass(frozen=True)
class BlockHit(InGroup, Event):
    """{seq_id} named cached block {block} as its logical block {logical_block}{of_group}: {it_holds} the same
    {tokens:token} behind the same prefix. {seq_id} computes none of them; the block's ref_count is now {ref_count}."""

    seq_id: str
    logical_block: int
    block: int
    block_hash: str
    ref_count: int
    tokens: tuple[Token, ...]
    num_tokens: int
    computed: bool = True  # False: an earlier sequence of the same launch fills it, and the tokens are there after that
    group: int | None = None

    @property
    def phrases(self) -> dict[str, str]:
        return {**super().phrases, "it_holds": "it holds" if self.computed else "after this step's launch it holds"}


@dataclass(frozen=True)
class BlockCached(InGroup, Event):
    """Block {block}{of_group} is full and got its hash, {block_hash}. A sequence that begins with the same tokens as
    {seq_id} can name it instead of computing them again."""

    seq_id: str
    logical_block: int
    block: int
    block_hash: str
    parent_hash: str | None
    tokens: tuple[Token, ...]
    group: int | None = None


@dataclass(frozen=True)
class BlockCollapsed(InGroup, Event):
    """{seq_id} filled block {source} with the tokens that cached block {target} holds already. Its logical block
    {logical_block}{of_group} now names block {target}: its ref_count is now {ref_count}. Block {source} went into the
    free queue at place {queue_index}."""

    seq_id: str
    logical_block: int
    source: int
    target: int
    ref_count: int
    queue_index: int
    group: int | None = None


@dataclass(frozen=True)
class BlockEvicted(Event):
    """Block {block} lost its hash, {block_hash}, because {reason}. No sequence can hit it any more."""

    block: int
    block_hash: str
    ref_count: int
    reason: str


@dataclass(frozen=True)
class TokenWritten(Event):
    """{seq_id} wrote “{token}” at position {position}: offset {offset} of block {block}, which is slot {slot}."""

    seq_id: str
    position: int
    token: Token
    block: int
    offset: int
    slot: int
    engine_step: int

    @property
    def writes(self) -> tuple[Write, ...]:
        return (Write(self.seq_id, self.position, (self.token,), (self.slot,)),)


@dataclass(frozen=True)
class TokensWritten(Event):
    """One launch wrote {seq_id}'s {tokens:token} ({positions}) into the slots that its block table points to."""

    seq_id: str
    position: int
    tokens: tuple[Token, ...]
    slots: tuple[int, ...]
    engine_step: int

    @property
    def writes(self) -> tuple[Write, ...]:
        return (Write(self.seq_id, self.position, self.tokens, self.slots),)

    @property
    def phrases(self) -> dict[str, str]:
        return {"positions": sentences.span("position", self.position, len(self.tokens))}


@dataclass(frozen=True)
class BatchWritten(Event):
    """One launch wrote {tokens_of_each}, each token into the slot that its sequence's block table points to."""

    seq_ids: tuple[str, ...]
    positions: tuple[int, ...]
    tokens: tuple[tuple[Token, ...], ...]
    slots: tuple[tuple[int, ...], ...]
    engine_step: int

    @property
    def writes(self) -> tuple[Write, ...]:
        return tuple(map(Write, self.seq_ids, self.positions, self.tokens, self.slots))

    @property
    def phrases(self) -> dict[str, str]:
        written = zip(self.seq_ids, self.tokens, strict=True)
        parts = [f"{sentences.count(len(tokens), 'token')} of {seq_id}" for seq_id, tokens in written]
        return {"tokens_of_each": sentences.named(parts)}


# Each has `writes`, one for each sequence of the launch.
Written = TokenWritten | TokensWritten | BatchWritten


@dataclass(frozen=True)
class WriteStopped(Event):
    """{seq_id} may not write into block {block}: {ref_count} tables name it. It needs its own copy first."""

    seq_id: str
    logical_block: int
    block: int
    ref_count: int


@dataclass(frozen=True)
class BlockCopied(Event):
    """Block {source} was copied to block {target}, the next out of the free queue: {num_slots:filled slot}, in every
    layer. No table names block {target} yet."""

    seq_id: str
    logical_block: int
    source: int
    target: int
    num_slots: int


@dataclass(frozen=True)
class EntryRewritten(Event):
    """{seq_id}'s logical block {logical_block} now names block {target} instead of block {source}. The ref_count of
    block {source} fell to {ref_count}."""

    seq_id: str
    logical_block: int
    source: int
    target: int
    ref_count: int


@dataclass(frozen=True)
class BlockReleased(InGroup, Event):
    """{seq_id} released {where} block {block}{of_group}. The block is still in use: its ref_count is now
    {ref_count}."""

    seq_id: str
    logical_block: int
    block: int
    where: str
    ref_count: int
    num_tokens: int
    group: int | None = None


@dataclass(frozen=True)
class BlockFreed(InGroup, Event):
    """{seq_id} released {where} block {block}{of_group}. No table names it any more, so it went into the {where} free
    queue at place {queue_index}."""

    seq_id: str
    logical_block: int
    block: int
    where: str
    queue_index: int
    num_tokens: int
    cached: bool = False
    group: int | None = None


@dataclass(frozen=True)
class SequenceFreed(Event):
    """{seq_id}'s block table is gone, and it holds no blocks."""

    seq_id: str
