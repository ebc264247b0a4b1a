"""One sequence: its tokens, and the two rows that say where each of its blocks is."""

from dataclasses import dataclass, field

from pagedviz.engine.events import Token


@dataclass
class Sequence:
    """`block_table[j]` is logical block j's physical block on the device, `host_table[j]` the one on the host; exactly
    one of the two is set. `last_scheduled` is the engine step in which the sequence last wrote a token."""

    seq_id: str
    tokens: list[Token] = field(default_factory=list)
    block_table: list[int | None] = field(default_factory=list)
    host_table: list[int | None] = field(default_factory=list)
    last_scheduled: int = 0

    @property
    def seq_len(self) -> int:
        return len(self.tokens)

    @property
    def device_blocks(self) -> list[int]:
        return [block for block in self.block_table if block is not None]

    @property
    def host_blocks(self) -> list[int]:
        return [block for block in self.host_table if block is not None]

    @property
    def is_resident(self) -> bool:
        """A kernel can run over it: all of its entries are on the device."""
        return not self.host_blocks

    def name_block(self, block: int, where: str) -> None:
        """Add a table entry: the next logical block is `block`, on the device or on the host."""
        self.block_table.append(block if where == "device" else None)
        self.host_table.append(block if where == "host" else None)
