"""The state of a paged cache, which the `changes` change."""

from collections.abc import Callable, Collection, Iterable
from collections.abc import Sequence as Tokens
from typing import Literal

from pagedviz.engine.blocks.pool import BlockPool
from pagedviz.engine.blocks.prefix_cache import PrefixCache
from pagedviz.engine.blocks.sequence import Sequence
from pagedviz.engine.log import errors
from pagedviz.engine.log.events.base import Event
from pagedviz.engine.policies.profiles import Profile
from pagedviz.engine.policies.windows import Window

Occasion = Literal["computed", "hit", "evicted"]
# Told on which occasion cached blocks may be stored elsewhere, and the hashes that must be kept there meanwhile.
Listener = Callable[[Occasion, Collection[int], Collection[str]], None]


class CacheState:
    """Two pools, the sequences with their tables, and what may be hit.

    `pinned` blocks are held for a copy or a transfer. `pending` blocks have a hash already and will hold their tokens
    after this step's launch. The player counts `engine_step` up; a written token stamps it on its sequence. The
    `listener` hears when a cached block could be stored elsewhere.
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
        # Of cached blocks in use: when a sequence that let go was last scheduled.
        self.last_used: dict[int, int] = {}
        # Of cached blocks: how many sequences used each, the one that computed it included.
        self.uses: dict[int, int] = {}

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

    def label(self, group: int) -> int | None:
        """A group as an event tells it: not at all where there is only one."""
        return group if len(self.windows) > 1 else None
