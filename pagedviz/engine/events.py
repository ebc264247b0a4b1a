"""What can happen to the cache: one frozen event an atomic change, in the past tense.

An event's docstring is the sentence that the screen shows, with its fields filled in: one text, not two.
An event holds every number that replay needs, so the log alone rebuilds each state (`replay.apply`).
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from pagedviz.engine import words
from pagedviz.engine.told import Told

Token = str | int


class Write(NamedTuple):
    """What one sequence wrote in a launch: `tokens` from `position` on, each into its slot."""

    seq_id: str
    position: int
    tokens: tuple[Token, ...]
    slots: tuple[int, ...]


@dataclass(frozen=True)
class Event(Told):
    """Something happened."""

    kinds: ClassVar[dict[str, type["Event"]]] = {}

    def __init_subclass__(cls, abstract: bool = False) -> None:
        if not abstract:
            Event.kinds[cls.__name__] = cls

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **dataclasses.asdict(self)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> "Event":
        fields = {name: _frozen(value) for name, value in data.items()}
        return Event.kinds[str(fields.pop("kind"))](**fields)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


class InGroup:
    """An event of one group's table. Where a cache has one group, `group` is None and the sentence does not say it."""

    group: int | None

    @property
    def phrases(self) -> dict[str, str]:
        return {"of_group": "" if self.group is None else f" of group {self.group}"}


@dataclass(frozen=True)
class SequenceAdded(Event):
    """{seq_id} arrived with a prompt of {num_tokens:token}. Its block table is empty."""

    seq_id: str
    num_tokens: int
    salt: str | None = None


@dataclass(frozen=True)
class SequenceForked(Event):
    """{seq_id} was forked from {parent}. It will name {parent}'s {num_blocks:block} and take none of its
    own{skipping}."""

    seq_id: str
    parent: str
    num_blocks: int
    num_skipped: int = 0  # entries that name the null block, as the parent's do

    @property
    def phrases(self) -> dict[str, str]:
        first = (
            f"; the null block stands in for {words.count(self.num_skipped, 'block')} before them, out of the window"
        )
        return {"skipping": first if self.num_skipped else ""}


@dataclass(frozen=True)
class BlockAllocated(InGroup, Event):
    """{seq_id} took block {block}, the next out of the free queue, as logical block {logical_block}{of_group}:
    {reason}."""

    seq_id: str
    logical_block: int
    block: int
    reason: str
    group: int | None = None


@dataclass(frozen=True)
class NullBlockTaken(Event):
    """Block {block} was taken out of the free queue for good: it is the null block, which entries out of the window
    name. Nothing is ever written there."""

    block: int


@dataclass(frozen=True)
class BlockOutOfWindow(InGroup, Event):
    """{seq_id}'s logical block {logical_block}{of_group} is out of the window: no token to come looks below position
    {first_seen}. Its entry names the null block, and block {block} {went}."""

    seq_id: str
    logical_block: int
    block: int
    null_block: int
    ref_count: int
    queue_index: int | None  # None: others name it yet
    cached: bool
    first_seen: int
    group: int | None = None

    @property
    def phrases(self) -> dict[str, str]:
        went = f"went into the free queue at place {self.queue_index}"
        if self.ref_count:
            went = f"stays with others, its ref_count now {self.ref_count}"
        return {**super().phrases, "went": went}


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
class PrefixSkipped(InGroup, Event):
    """The null block stands in for {seq_id}'s first {num_blocks:logical block}{of_group}: the window of the tokens to
    come does not reach back there, so nobody need hold the prompt's first {tokens:token}."""

    seq_id: str
    tokens: tuple[Token, ...]
    num_blocks: int
    null_block: int
    group: int | None = None


@dataclass(frozen=True)
class BlockCached(InGroup, Event):
    """Block {block}{of_group} got its hash, {block_hash}: it is full, and whoever begins with the same tokens as
    {seq_id} may name it instead of computing them again."""

    seq_id: str
    logical_block: int
    block: int
    block_hash: str
    parent_hash: str | None
    tokens: tuple[Token, ...]
    group: int | None = None


@dataclass(frozen=True)
class BlockCollapsed(InGroup, Event):
    """{seq_id} filled block {source} with what cached block {target} holds already. Its logical block
    {logical_block}{of_group} now names block {target}, whose ref_count is {ref_count}; block {source} went into the
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
    """Block {block} lost its hash, {block_hash}, because {reason}. Nobody can hit it any more."""

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
    """{seq_id} wrote {tokens:token} in one launch, from position {position} on, each into the slot that its block table
    gives."""

    seq_id: str
    position: int
    tokens: tuple[Token, ...]
    slots: tuple[int, ...]
    engine_step: int

    @property
    def writes(self) -> tuple[Write, ...]:
        return (Write(self.seq_id, self.position, self.tokens, self.slots),)


@dataclass(frozen=True)
class BatchWritten(Event):
    """One launch wrote {whose}, each token into the slot that its sequence's block table gives."""

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
        parts = [f"{len(tokens)} of {seq_id}" for seq_id, tokens in zip(self.seq_ids, self.tokens, strict=True)]
        return {"whose": words.named(parts)}


# All have `writes`, one for each sequence of the launch.
Written = TokenWritten | TokensWritten | BatchWritten


@dataclass(frozen=True)
class WriteStopped(Event):
    """{seq_id} may not write into block {block}: {ref_count} tables name it. It needs a copy of its own first."""

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
    """{seq_id}'s logical block {logical_block} now names block {target} instead of block {source}, whose ref_count
    fell to {ref_count}."""

    seq_id: str
    logical_block: int
    source: int
    target: int
    ref_count: int


@dataclass(frozen=True)
class BlockReleased(InGroup, Event):
    """{seq_id} let go of {where} block {block}{of_group}. Others still name it: its ref_count is now {ref_count}."""

    seq_id: str
    logical_block: int
    block: int
    where: str
    ref_count: int
    num_tokens: int
    group: int | None = None


@dataclass(frozen=True)
class BlockFreed(InGroup, Event):
    """{seq_id} let go of {where} block {block}{of_group}. No table names it any more, so it went into the
    {where} free queue at place {queue_index}."""

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
    """{seq_id} has no block table any more, and owns no block."""

    seq_id: str


@dataclass(frozen=True)
class BlockSpilled(Event):
    """Block {block} moved to host block {host_block}, because {reason}. Its old place went back to the free queue."""

    seq_id: str
    seq_ids: tuple[str, ...]
    block: int
    host_block: int
    queue_index: int
    reason: str


@dataclass(frozen=True)
class BlockReloaded(Event):
    """Host block {host_block} came back to the device as block {block}, the next out of the free queue, because
    {seq_id} is wanted there."""

    seq_id: str
    seq_ids: tuple[str, ...]
    block: int
    host_block: int
    queue_index: int


@dataclass(frozen=True)
class TokensDrafted(Event):
    """“{draft}” is drafted behind what {seq_id} has, for {positions}. The next launch computes it together with the
    token before it; what the model would not have said itself is then taken back."""

    seq_id: str
    position: int
    tokens: tuple[Token, ...]
    confidences: tuple[float, ...] = ()  # none for given drafts

    @property
    def phrases(self) -> dict[str, str]:
        last = self.position + len(self.tokens) - 1
        places = f"position {last}" if len(self.tokens) == 1 else f"positions {self.position} to {last}"
        return {"draft": " ".join(map(str, self.tokens)), "positions": places}


@dataclass(frozen=True)
class DraftsVerified(Event):
    """{verdict}. {seq_id} has {num_tokens:token} in the cache."""

    seq_id: str
    accepted: tuple[Token, ...]
    rejected: tuple[Token, ...]
    slots: tuple[int, ...]  # of what was rejected, in every group; they hold garbage from now on
    num_tokens: int

    @property
    def phrases(self) -> dict[str, str]:
        number = words.count(len(self.accepted) + len(self.rejected), "draft")
        if not self.rejected:
            return {"verdict": f"The model says what was drafted: {number} of {self.seq_id} accepted"}
        slots = f"slot {self.slots[0]} holds" if len(self.slots) == 1 else f"slots {words.named(self.slots)} hold"
        num_accepted = len(self.accepted)
        first = ("none", "the first")[num_accepted] if num_accepted < 2 else f"the first {num_accepted}"
        said = f"Of {number} of {self.seq_id} the model says {first} itself"
        return {"verdict": f"{said}. Rolled back: {slots} garbage now"}


@dataclass(frozen=True)
class DraftsDropped(Event):
    """Dropped before they are verified: {tokens:draft} of {seq_id}, because {reason}."""

    seq_id: str
    tokens: tuple[Token, ...]
    reason: str


@dataclass(frozen=True)
class OperationRefused(Event):
    """Refused: {op}. Nothing changed."""

    op: str
