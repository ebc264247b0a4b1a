"""What happens to blocks that a sliding window has left behind, and to the null block that stands for them."""

from dataclasses import dataclass

from pagedviz.engine.log.events.base import Event, InGroup, Token


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
class PrefixSkipped(InGroup, Event):
    """The null block stands in for {seq_id}'s first {num_blocks:logical block}{of_group}: the window of the tokens to
    come does not reach back there, so nobody need hold the prompt's first {tokens:token}."""

    seq_id: str
    tokens: tuple[Token, ...]
    num_blocks: int
    null_block: int
    group: int | None = None
