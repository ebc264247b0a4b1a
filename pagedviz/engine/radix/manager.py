"""What SGLang does with its radix tree when a sequence arrives, grows and is finished. It owns the pool of pages.

A prompt is matched, and its match is locked. Pages are taken for the rest of the prompt; if too few are free, leaves
are evicted. When the prompt is computed, the tree gets its whole pages. Pages of later tokens stay with the sequence
until it is finished.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pagedviz.engine.log import errors
from pagedviz.engine.log.events.base import Token
from pagedviz.engine.radix.tree import RadixTree


@dataclass
class RadixSequence:
    """`pages` hold its tokens; the last may be partly filled. The first `num_kept` of them belong to the tree and end
    with `node`, which the sequence locks."""

    tokens: list[Token]
    salt: str | None
    node: int
    pages: list[int]
    num_kept: int


class RadixManager:
    """The tree and `num_pages` pages. A refused call changes no sequence, but its matched nodes count as used."""

    def __init__(self, tree: RadixTree, num_pages: int) -> None:
        self.tree = tree
        self.num_pages = num_pages
        self.free_pages = deque(range(num_pages))
        self.sequences: dict[str, RadixSequence] = {}

    def num_hit_tokens(self, tokens: Sequence[Token], salt: str | None = None) -> int:
        """How many tokens of a prompt need not be computed now. The call counts as a use of them, as in SGLang."""
        return self.tree.match(tokens, salt).num_tokens

    def add(self, seq_id: str, tokens: Sequence[Token], salt: str | None = None) -> int:
        """Admit a prompt and keep its computed pages; return how many of its tokens were hit."""
        num_hit = self.admit(seq_id, tokens, salt)
        self.keep(seq_id)
        return num_hit

    def admit(self, seq_id: str, tokens: Sequence[Token], salt: str | None = None) -> int:
        """Match a prompt, lock its match and take pages for the rest; return how many tokens were hit.

        Raises `DuplicateSequence`, `NoTokens`, or `TooFewEvictable` when too many pages are locked.
        """
        if seq_id in self.sequences:
            raise errors.DuplicateSequence(seq_id=seq_id)
        if not tokens:
            raise errors.NoTokens(seq_id=seq_id)
        found = self.tree.match(tokens, salt)
        self.tree.lock(found.node)
        try:
            taken = self._take(self._pages_for(len(tokens)) - len(found.pages))
        except errors.TooFewEvictable:
            self.tree.unlock(found.node)
            raise
        pages = [*found.pages, *taken]
        self.sequences[seq_id] = RadixSequence(list(tokens), salt, found.node, pages, len(found.pages))
        return found.num_tokens

    def keep(self, seq_id: str) -> None:
        """Give the tree the whole pages that a sequence has computed, and free the sequence's duplicates."""
        seq = self._find(seq_id)
        kept = self.tree.insert(seq.tokens, seq.pages, seq.salt)
        self.tree.lock(kept.node)
        self.tree.unlock(seq.node)
        self.free_pages.extend(kept.duplicates)
        seq.node, seq.num_kept = kept.node, len(kept.pages)
        seq.pages[: seq.num_kept] = kept.pages

    def append(self, seq_id: str, tokens: Sequence[Token]) -> None:
        """Write more tokens. They are not in the tree yet. Raises `UnknownSequence` or `TooFewEvictable`."""
        seq = self._find(seq_id)
        seq.pages += self._take(self._pages_for(len(seq.tokens) + len(tokens)) - len(seq.pages))
        seq.tokens += tokens

    def free(self, seq_id: str) -> None:
        """Finish a sequence: the tree keeps its whole pages, unlocked, and a partly filled page is freed."""
        self.keep(seq_id)
        seq = self.sequences.pop(seq_id)
        self.free_pages.extend(seq.pages[seq.num_kept :])
        self.tree.unlock(seq.node)

    def _take(self, num_pages: int) -> Iterable[int]:
        """Take free pages. If there are too few, leaves are evicted first. All pages are taken or none."""
        missing = num_pages - len(self.free_pages)
        if missing > 0:
            self.free_pages.extend(self.tree.evict(missing * self.tree.page_size))
        return [self.free_pages.popleft() for _ in range(num_pages)]

    def _pages_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.tree.page_size)

    def _find(self, seq_id: str) -> RadixSequence:
        if seq_id not in self.sequences:
            raise errors.UnknownSequence(seq_id=seq_id, known=", ".join(self.sequences) or "none at all")
        return self.sequences[seq_id]
