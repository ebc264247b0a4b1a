"""Which cached block holds which tokens: the map from hashes to blocks. The pool counts the entries that name one."""

from collections.abc import Sequence as Tokens

from pagedviz.engine.blocks import hashing
from pagedviz.engine.blocks.hashing import Link
from pagedviz.engine.log.events.base import Token


class PrefixCache:
    """`links[block]` is what a cached block holds, in the layers of one group: there is one map for each group. Several
    blocks may hold the same; the first of them is hit.

    Every method takes time independent of the number of blocks.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.links: dict[int, Link] = {}
        self.groups: dict[int, int] = {}  # of each cached block
        # By hash and group, as the same tokens are other K and V in other layers: blocks in the order of their caching.
        self._by_hash: dict[tuple[bytes, int], dict[int, None]] = {}

    def __contains__(self, block: int) -> bool:
        return block in self.links

    def longest_prefix(self, tokens: Tokens[Token], salt: str | None) -> list[int]:
        """The cached blocks that a prompt may name instead of computing, from its block 0 on without a gap.

        Only whole blocks, and at most len(tokens) - 1 tokens: the last token is computed, for its output is wanted.
        Example: block_size=4, 11 tokens of which 10 were cached as blocks 1 and 2 and a partly filled 3 -> [1, 2].
        """
        size, parent, found = self.block_size, None, []
        for start in range(0, (len(tokens) - 1) // size * size, size):
            block = self.find(hashing.link(parent, tokens[start : start + size], salt))
            if block is None:
                break
            parent = self.links[block]
            found.append(block)
        return found

    def find(self, link: Link, group: int = 0) -> int | None:
        """The first of a group's cached blocks that holds the same tokens behind the same prefix, or None."""
        for block in self._by_hash.get((link.block_hash, group), ()):
            if hashing.same_content(self.links[block], link):
                return block
        return None

    def put(self, block: int, link: Link, group: int = 0) -> None:
        """Let `block` be found from now on."""
        self.links[block], self.groups[block] = link, group
        self._by_hash.setdefault((link.block_hash, group), {})[block] = None

    def drop(self, block: int) -> Link:
        """Let `block` be found no more; return what it holds."""
        link = self.links.pop(block)
        key = link.block_hash, self.groups.pop(block)
        same = self._by_hash[key]
        del same[block]
        if not same:
            del self._by_hash[key]
        return link
