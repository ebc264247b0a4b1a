"""One sequence: its tokens, and the two rows that say where each of its blocks is."""

import collections.abc
from dataclasses import dataclass, field

from pagedviz.engine.block_hash import Link
from pagedviz.engine.events import Token


@dataclass(slots=True)
class Sequence:
    """`block_table[j]` is logical block j's physical block on the device, `host_table[j]` the one on the host; exactly
    one of the two is set, the latter `num_on_host` times. `last_scheduled` is the engine step in which the sequence
    last wrote a token. `links[j]` is what full block j holds, when prefixes are cached.

    `tokens` are in the cache. The next launch writes the `scheduled` ones; `awaited` come before them, from cached
    blocks that the same launch fills for another sequence. A sequence that is `managed` belongs to a request."""

    seq_id: str
    tokens: list[Token] = field(default_factory=list)
    block_table: list[int | None] = field(default_factory=list)
    host_table: list[int | None] = field(default_factory=list)
    last_scheduled: int = 0
    num_on_host: int = 0
    salt: str | None = None
    links: list[Link] = field(default_factory=list)
    awaited: list[Token] = field(default_factory=list)
    scheduled: collections.abc.Sequence[Token] = ()
    managed: bool = False

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
        return not self.num_on_host

    def name_block(self, block: int, where: str) -> None:
        """Add a table entry: the next logical block is `block`, on the device or on the host."""
        self.block_table.append(block if where == "device" else None)
        self.host_table.append(block if where == "host" else None)
        self.num_on_host += where == "host"

    def drop_last_block(self, block_size: int) -> None:
        """Remove the last table entry, and what it held."""
        j = len(self.block_table) - 1
        self.num_on_host -= self.host_table[j] is not None
        del self.block_table[j], self.host_table[j], self.tokens[j * block_size :], self.links[j:]
