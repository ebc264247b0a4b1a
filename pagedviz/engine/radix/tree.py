"""Prefix caching as in SGLang: a tree of token runs. A prompt with the same beginning reuses the pages of its nodes.

    root ── 1 "You are a helpful" ─┬─ 2 "poet . Write"
                                   └─ 3 "clerk . File"

A page is SGLang's word for a block of `page_size` slots. At its default of 1, a page is one slot. Only whole pages are
cached. A sequence that uses a cached prefix locks its last node, and so the whole path above it. Nodes without a lock
are evicted leaf by leaf, so a prefix stays longer than its continuations. After each atomic change the tree reports
one event.
Source: Zheng et al., SGLang: Efficient Execution of Structured Language Model Programs (2024), section 3.
"""

import dataclasses
import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pagedviz.engine.log import errors
from pagedviz.engine.log.events.base import Token
from pagedviz.engine.radix.events import (
    RadixEvent,
    RadixEvicted,
    RadixInserted,
    RadixLocked,
    RadixMatched,
    RadixRevisited,
    RadixSplit,
    RadixUnlocked,
)
from pagedviz.engine.radix.eviction import EvictionPolicy, lru
from pagedviz.engine.radix.snapshot import ROOT, RadixNode, RadixSnapshot

Edge = tuple[str | None, tuple[Token, ...]]


@dataclass(frozen=True)
class Match:
    """The longest cached prefix. `node` ends it and can be locked; `pages` are its pages, from the first token on."""

    node: int
    num_tokens: int
    pages: tuple[int, ...]


@dataclass(frozen=True)
class Insertion:
    """The result of an insert.

    `node` ends with the last whole page. `pages` are the tree's pages from the first token on. `num_reused` tokens were
    in the tree before, `num_new` were added. `duplicates` are given pages with tokens that the tree has in other pages.
    They stay with the caller, which uses `pages` instead and frees the duplicates.
    """

    node: int
    num_reused: int
    num_new: int
    pages: tuple[int, ...]
    duplicates: tuple[int, ...]


class RadixTree:
    """Maps token sequences to the pages that hold their keys and values.

    `salt` separates tokens that must not be shared, such as those of two adapters: another salt never matches.
    `evictable_size` counts the tokens of nodes without a lock, `protected_size` those of locked nodes.
    """

    def __init__(
        self, *, page_size: int = 1, policy: EvictionPolicy = lru, report: Callable[[RadixEvent], None]
    ) -> None:
        self.page_size = page_size
        self.policy = policy
        self.evictable_size = 0
        self.protected_size = 0
        self._report = report
        self._nodes = {ROOT: RadixNode(None, None, (), (), lock_count=0, last_used=0, inserted=0, hit_count=0)}
        self._children: dict[int, dict[Edge, int]] = {ROOT: {}}
        self._owned: set[int] = set()
        self._num_made = 1
        # A heap that has each free leaf once, maybe with an older value. Values never fall, so no entry is too high.
        self._queue: list[tuple[tuple[int, ...], int]] = []
        self._queued: set[int] = set()

    # --- operations ---

    def match(self, tokens: Sequence[Token], salt: str | None = None) -> Match:
        """Find the longest cached prefix of a prompt: whole pages, and at most all tokens but the last.

        A node in which the match ends is split, so that the match can be locked alone. The path counts as used.
        Example: page_size=4, 8 tokens are cached, the same 8 are matched -> 4, because the last one must be computed.
        """
        path, num_tokens, surplus = self._walk(self._whole_pages(tokens[:-1]), salt)
        self._split_tail(path, surplus)
        time = self._use(path, hits=0)
        self._report(RadixMatched(len(tokens), num_tokens, tuple(path), time))
        return Match(path[-1], num_tokens, self._pages(path))

    def insert(self, tokens: Sequence[Token], pages: Sequence[int], salt: str | None = None) -> Insertion:
        """Add the computed tokens that fill whole pages. The tree owns the pages of new tokens from now on.

        `pages`: one for each whole page of tokens, from the first token on, including those of a match. A partly filled
        last page may follow; it stays with the caller. Raises `TooFewPages`, or `PageOwned` for a page that is given
        twice or belongs to the tree.
        """
        tokens = self._whole_pages(tokens)
        num_pages = len(tokens) // self.page_size
        if len(pages) < num_pages:
            raise errors.TooFewPages(num_tokens=len(tokens), needed=num_pages, given=len(pages))
        pages = tuple(pages[:num_pages])
        path, num_reused, surplus = self._walk(tokens, salt)
        reused = num_reused // self.page_size
        held = self._pages(path)[:reused]
        duplicates = tuple(page for page, its in zip(pages, held, strict=False) if page != its)
        self._must_be_new(duplicates + pages[reused:])
        self._split_tail(path, surplus)
        time = self._use(path, hits=1)
        self._report(RadixRevisited(len(tokens), num_reused, tuple(path), duplicates, time))
        if num_reused < len(tokens):
            path.append(self._add_leaf(path[-1], salt, tokens[num_reused:], pages[reused:], time))
        return Insertion(path[-1], num_reused, len(tokens) - num_reused, held + pages[reused:], duplicates)

    def lock(self, node: int) -> None:
        """Protect a node and all nodes above it from eviction, until it is unlocked as often as it was locked.

        The root may be locked.
        """
        path = self._path(node)
        num_tokens = self._unlocked_tokens(path)
        self._count_lock(path, 1)
        self.evictable_size -= num_tokens
        self.protected_size += num_tokens
        self._report(RadixLocked(node, tuple(path), num_tokens))

    def unlock(self, node: int) -> None:
        """Remove one lock of a node. Raises `NotLocked` if all of its locks belong to nodes below it."""
        path = self._path(node)
        below = sum(self._nodes[child].lock_count for child in self._children[node].values())
        if self._nodes[node].lock_count == below:
            raise errors.NotLocked(node=node, below=below)
        self._count_lock(path, -1)
        num_tokens = self._unlocked_tokens(path)
        self.evictable_size += num_tokens
        self.protected_size -= num_tokens
        self._queue_free_leaf(node)
        self._report(RadixUnlocked(node, tuple(path), num_tokens))

    def evict(self, num_tokens: int) -> tuple[int, ...]:
        """Evict whole leaves until at least `num_tokens` are gone; return their pages, which are free now.

        Raises `TooFewEvictable` before any leaf is evicted. Takes O(log n) a leaf: a heap finds it, not a search.
        """
        if num_tokens > self.evictable_size:
            raise errors.TooFewEvictable(
                needed=num_tokens, evictable=self.evictable_size, protected=self.protected_size
            )
        freed: list[int] = []
        enough = self.evictable_size - num_tokens
        while self.evictable_size > enough:
            freed += self._forget(self._next_leaf())
        return tuple(freed)

    def snapshot(self) -> RadixSnapshot:
        """The tree now, frozen."""
        return RadixSnapshot(self.page_size, self.evictable_size, self.protected_size, dict(self._nodes))

    # --- the atomic changes ---

    def _split_tail(self, path: list[int], surplus: int) -> None:
        """Split the path's last node if its last `surplus` tokens are beyond the match. The path then ends with the
        front half."""
        if not surplus:
            return
        node, run = path[-1], self._nodes[path[-1]]
        num_tokens = len(run.tokens) - surplus
        num_pages = num_tokens // self.page_size
        upper = path[-1] = self._new_id()
        rest = dataclasses.replace(run, parent=upper, tokens=run.tokens[num_tokens:], pages=run.pages[num_pages:])
        self._nodes[upper] = dataclasses.replace(run, tokens=run.tokens[:num_tokens], pages=run.pages[:num_pages])
        self._nodes[node] = rest
        self._children[path[-2]][self._edge(run.salt, run.tokens)] = upper
        self._children[upper] = {self._edge(rest.salt, rest.tokens): node}
        self._report(RadixSplit(node, upper, num_tokens))

    def _add_leaf(
        self, parent: int, salt: str | None, tokens: tuple[Token, ...], pages: tuple[int, ...], time: int
    ) -> int:
        node = self._new_id()
        self._nodes[node] = RadixNode(parent, salt, tokens, pages, 0, last_used=time, inserted=time, hit_count=1)
        self._children[node] = {}
        self._children[parent][self._edge(salt, tokens)] = node
        self._owned.update(pages)
        self.evictable_size += len(tokens)
        self._queue_free_leaf(node)
        self._report(RadixInserted(node, parent, salt, tokens, pages, time))
        return node

    def _forget(self, node: int) -> tuple[int, ...]:
        run = self._nodes.pop(node)
        assert run.parent is not None
        del self._children[node]
        del self._children[run.parent][self._edge(run.salt, run.tokens)]
        self._owned.difference_update(run.pages)
        self.evictable_size -= len(run.tokens)
        self._queue_free_leaf(run.parent)
        self._report(RadixEvicted(node, self.policy.__name__, run.tokens, run.pages))
        return run.pages

    # --- the queue of leaves ---

    def _queue_free_leaf(self, node: int) -> None:
        """Queue a node if it is a leaf without a lock and not queued yet. If it is used later, its entry is too low."""
        if self._is_free_leaf(node) and node not in self._queued:
            self._queued.add(node)
            heapq.heappush(self._queue, (self.policy(self._nodes[node]), node))

    def _next_leaf(self) -> int:
        """Take the free leaf that the policy puts first out of the queue."""
        while True:
            value, node = heapq.heappop(self._queue)
            self._queued.remove(node)
            if self._is_free_leaf(node) and value == self.policy(self._nodes[node]):
                return node
            # If it was used since, it goes back with its new value. If it is no free leaf now, it is queued when it is
            # one again.
            self._queue_free_leaf(node)

    def _is_free_leaf(self, node: int) -> bool:
        return node != ROOT and not self._children[node] and not self._nodes[node].lock_count

    # --- helpers ---

    def _walk(self, tokens: tuple[Token, ...], salt: str | None) -> tuple[list[int], int, int]:
        """The path along `tokens`, how many of them it holds, and how many other tokens its last node holds."""
        path, num_tokens = [ROOT], 0
        while num_tokens < len(tokens):
            child = self._children[path[-1]].get(self._edge(salt, tokens, num_tokens))
            if child is None:
                break
            run = self._nodes[child].tokens
            common = self._common(run, tokens[num_tokens : num_tokens + len(run)])
            path.append(child)
            num_tokens += common
            if common < len(run):
                return path, num_tokens, len(run) - common
        return path, num_tokens, 0

    def _common(self, run: tuple[Token, ...], tokens: tuple[Token, ...]) -> int:
        """How many tokens of both are equal from the start, in whole pages."""
        pairs = enumerate(zip(run, tokens, strict=False))
        agree = next((i for i, (mine, other) in pairs if mine != other), min(len(run), len(tokens)))
        return agree - agree % self.page_size

    def _edge(self, salt: str | None, tokens: tuple[Token, ...], start: int = 0) -> Edge:
        """The key of a child: the first page of its run, and its salt."""
        return salt, tokens[start : start + self.page_size]

    def _whole_pages(self, tokens: Sequence[Token]) -> tuple[Token, ...]:
        return tuple(tokens[: len(tokens) - len(tokens) % self.page_size])

    def _pages(self, path: list[int]) -> tuple[int, ...]:
        return tuple(page for node in path for page in self._nodes[node].pages)

    def _must_be_new(self, pages: tuple[int, ...]) -> None:
        seen: set[int] = set()
        for page in pages:
            if page in self._owned or page in seen:
                raise errors.PageOwned(page=page)
            seen.add(page)

    def _path(self, node: int) -> list[int]:
        """The nodes from the root down to this one."""
        if node not in self._nodes:
            raise errors.UnknownNode(node=node)
        path = [node]
        while (parent := self._nodes[path[-1]].parent) is not None:
            path.append(parent)
        return path[::-1]

    def _use(self, path: list[int], hits: int) -> int:
        """Mark the path as used now, and return the time. Each match and each insert adds one to the time."""
        time = self._nodes[ROOT].last_used + 1
        for node in path:
            run = self._nodes[node]
            self._nodes[node] = dataclasses.replace(run, last_used=time, hit_count=run.hit_count + hits)
        return time

    def _count_lock(self, path: list[int], by: int) -> None:
        for node in path:
            run = self._nodes[node]
            self._nodes[node] = dataclasses.replace(run, lock_count=run.lock_count + by)

    def _unlocked_tokens(self, path: list[int]) -> int:
        return sum(len(self._nodes[node].tokens) for node in path if not self._nodes[node].lock_count)

    def _new_id(self) -> int:
        self._num_made += 1
        return self._num_made - 1
