"""What SGLang does around its radix tree for a sequence that comes, grows and is finished. It owns the pool of pages.

A prompt is matched and its match locked, pages are taken for the rest, if need be by evicting, and once all is computed
the tree gets the whole pages. Tokens that come later stay the sequence's own until it is finished.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pagedviz.engine.log import errors
from pagedviz.engine.log.events.base import Token
from pagedviz.engine.radix.tree import RadixTree


@dataclass
class RadixSequence:
    """`pages` has one a page of tokens, the last perhaps partly filled. The first `num_kept` of them are the tree's and
    end with `node`, which the sequence locks."""

    tokens: list[Token]
    salt: str | None
    node: int
    pages: list[int]
    num_kept: int


class RadixManager:
    """The tree and `num_pages` pages. Whoever is refused changes no sequence, though what it matched counts as used."""

    def __init__(self, tree: RadixTree, num_pages: int) -> None:
        self.tree = tree
        self.num_pages = num_pages
        self.free_pages = deque(range(num_pages))
        self.sequences: dict[str, RadixSequence] = {}

    def num_hit_tokens(self, tokens: Sequence[Token], salt: str | None = None) -> int:
        """Tokens of a prompt that need not be computed now. To be asked after counts as use, as in SGLang."""
        return self.tree.match(tokens, salt).num_tokens

    def add(self, seq_id: str, tokens: Sequence[Token], salt: str | None = None) -> int:
        """Admit a prompt and keep it as computed; return how many of its tokens were hit."""
        num_hit = self.admit(seq_id, tokens, salt)
        self.keep(seq_id)
        return num_hit

    def admit(self, seq_id: str, tokens: Sequence[Token], salt: str | None = None) -> int:
        """Match a prompt, lock what was found and take pages for the rest; return how many tokens were hit.

        Raises `DuplicateSequence`, `NoTokens`, or `TooFewEvictable` when locked pages leave too little.
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
        """Give the tree what a sequence has computed, whole pages of it, and free pages that it holds already."""
        seq = self._find(seq_id)
        kept = self.tree.insert(seq.tokens, seq.pages, seq.salt)
        self.tree.lock(kept.node)
        self.tree.unlock(seq.node)
        self.free_pages.extend(kept.duplicates)
        seq.node, seq.num_kept = kept.node, len(kept.pages)
        seq.pages[: seq.num_kept] = kept.pages

    def append(self, seq_id: str, tokens: Sequence[Token]) -> None:
        """Write more tokens. They are in no tree yet. Raises `UnknownSequence` or `TooFewEvictable`."""
        seq = self._find(seq_id)
        seq.pages += self._take(self._pages_for(len(seq.tokens) + len(tokens)) - len(seq.pages))
        seq.tokens += tokens

    def free(self, seq_id: str) -> None:
        """Finish a sequence: the tree keeps its whole pages, unlocked, and a partly filled one is free."""
        self.keep(seq_id)
        seq = self.sequences.pop(seq_id)
        self.free_pages.extend(seq.pages[seq.num_kept :])
        self.tree.unlock(seq.node)

    def _take(self, num_pages: int) -> Iterable[int]:
        """Pages from the head of the free ones; what is missing is evicted, all of it or nothing."""
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
