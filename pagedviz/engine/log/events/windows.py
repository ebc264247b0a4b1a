"""Events of blocks that are out of a sliding window, and of the null block that stands for them."""

from dataclasses import dataclass

from pagedviz.engine.log.events.base import Event, InGroup, Token


@dataclass(frozen=True)
class NullBlockTaken(Event):
    """Block {block} was taken out of the free queue for good. It is the null block: table entries out of the window
    name it, and nothing is ever written there."""

    block: int


@dataclass(frozen=True)
class BlockOutOfWindow(InGroup, Event):
    """{seq_id}'s logical block {logical_block}{of_group} is out of the window: no later token reads below position
    {first_seen}. Its entry now names the null block, and block {block} {went}."""

    seq_id: str
    logical_block: int
    block: int
    null_block: int
    ref_count: int
    queue_index: int | None  # None: the block is still in use
    cached: bool
    first_seen: int
    group: int | None = None

    @property
    def phrases(self) -> dict[str, str]:
        went = f"went into the free queue at place {self.queue_index}"
        if self.ref_count:
            went = f"is still in use: its ref_count is now {self.ref_count}"
        return {**super().phrases, "went": went}


@dataclass(frozen=True)
class PrefixSkipped(InGroup, Event):
    """The null block stands for {seq_id}'s first {num_blocks:logical block}{of_group}. They are out of the window of
    all later tokens, so the prompt's first {tokens:token} need no block."""

    seq_id: str
    tokens: tuple[Token, ...]
    num_blocks: int
    null_block: int
    group: int | None = None
