"""The free blocks of one memory, in the order in which they are handed out: a list linked through the block ids."""

from collections.abc import Iterable, Iterator

Recency = tuple[int, int]


class FreeQueue:
    """The first block is handed out next. Each method takes the same time in a pool of any size; iteration does not.

    `recency[block]` is there for blocks that a policy orders by their last use.
    """

    def __init__(self, num_blocks: int, blocks: Iterable[int]) -> None:
        # One place more than there are blocks. It stands behind the last block and before the first one.
        self._ends = num_blocks
        self._next = [self._ends] * (num_blocks + 1)
        self._previous = [self._ends] * (num_blocks + 1)
        self._length = 0
        self.recency: dict[int, Recency] = {}
        for block in blocks:
            self.insert(block, self.last)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        block = self._next[self._ends]
        while block != self._ends:
            yield block
            block = self._next[block]

    @property
    def first(self) -> int:
        """The block that is handed out next. Raises IndexError when the queue is empty."""
        if not self._length:
            raise IndexError("FreeQueue.first: the queue is empty; look at its length before")
        return self._next[self._ends]

    @property
    def last(self) -> int | None:
        return self.before(self._ends)

    def before(self, block: int) -> int | None:
        """The block that is handed out right before this one, or None."""
        previous = self._previous[block]
        return None if previous == self._ends else previous

    def insert(self, block: int, behind: int | None, recency: Recency | None = None) -> None:
        """Put a block right behind another one, or before all blocks when that is None."""
        previous = self._ends if behind is None else behind
        following = self._next[previous]
        self._next[previous] = self._previous[following] = block
        self._previous[block], self._next[block] = previous, following
        self._length += 1
        if recency is not None:
            self.recency[block] = recency

    def remove(self, block: int) -> None:
        """Take a block out, at whatever place it is."""
        previous, following = self._previous[block], self._next[block]
        self._next[previous], self._previous[following] = following, previous
        self._length -= 1
        if self.recency:
            self.recency.pop(block, None)
