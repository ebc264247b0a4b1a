"""One sequence: its tokens, and the two rows that say where each of its blocks is."""

import collections.abc
from dataclasses import dataclass, field

from pagedviz.engine.blocks.hashing import Link
from pagedviz.engine.log.events.base import Token


@dataclass(slots=True)
class Sequence:
    """`block_tables[group][j]` is logical block j's physical block on the device in the layers of that group, and
    `host_table[j]` the one on the host; exactly one of the two is set, the latter `num_on_host` times and only where
    there is one group. The first `num_skipped[group]` entries are out of the window: they name the null block.
    `last_scheduled` is the engine step in which the sequence last wrote a token. `links[j]` is what full block j holds,
    when prefixes are cached.

    `tokens` are in the cache; the newest `unverified` of them are drafts. The next launch writes the `scheduled` ones,
    of which the last are the `drafts`; `awaited` come before them, from cached blocks that the same launch fills for
    another sequence. A sequence that is `managed` belongs to a request. The first `num_offered` blocks were offered to
    the host tier."""

    seq_id: str
    tokens: list[Token] = field(default_factory=list)
    block_tables: list[list[int | None]] = field(default_factory=lambda: [[]])
    host_table: list[int | None] = field(default_factory=list)
    last_scheduled: int = 0
    num_on_host: int = 0
    salt: str | None = None
    links: list[Link] = field(default_factory=list)
    awaited: list[Token] = field(default_factory=list)
    scheduled: collections.abc.Sequence[Token] = ()
    drafts: tuple[Token, ...] = ()
    unverified: int = 0
    managed: bool = False
    num_offered: int = 0
    num_skipped: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.num_skipped = [0] * len(self.block_tables)

    @property
    def block_table(self) -> list[int | None]:
        """Of group 0, most often the only one."""
        return self.block_tables[0]

    @property
    def seq_len(self) -> int:
        return len(self.tokens)

    @property
    def device_blocks(self) -> list[int]:
        """Of group 0, without the null block."""
        return [block for block in self.block_table[self.num_skipped[0] :] if block is not None]

    @property
    def host_blocks(self) -> list[int]:
        return [block for block in self.host_table if block is not None]

    @property
    def is_resident(self) -> bool:
        """A kernel can run over it: all of its entries are on the device."""
        return not self.num_on_host

    def on_device(self, j: int, group: int = 0) -> int:
        """Logical block j's physical block, which is on the device."""
        block = self.block_tables[group][j]
        assert block is not None
        return block

    def name_block(self, block: int, where: str, group: int = 0) -> None:
        """Add a table entry: the next logical block is `block`, on the device or on the host."""
        self.block_tables[group].append(block if where == "device" else None)
        if group == 0:
            self.host_table.append(block if where == "host" else None)
            self.num_on_host += where == "host"

    def skip(self, null_block: int, num_blocks: int, group: int = 0) -> None:
        """Let the first entries name the null block."""
        for _ in range(num_blocks):
            self.name_block(null_block, "device", group)
        self.num_skipped[group] = num_blocks

    def drop_last_block(self, block_size: int, group: int = 0) -> None:
        """Remove the last table entry, and with group 0's what it held."""
        j = len(self.block_tables[group]) - 1
        del self.block_tables[group][j]
        if group == 0:
            self.num_on_host -= self.host_table[j] is not None
            del self.host_table[j], self.tokens[j * block_size :], self.links[j:]
