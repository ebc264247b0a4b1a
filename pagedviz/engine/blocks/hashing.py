"""A full block's hash: of the hash before it, its own tokens, and in the first block the salt.

h(0) = sha256(tokens, salt); h(j) = sha256(h(j - 1), tokens). So equal hashes mean equal tokens from position 0 on, and
sharing takes no less: from the second layer on, K and V depend on every token before. The same in every process, unlike
Python's own `hash`. Source: vLLM V1's chained block hashes.
"""

import hashlib
from collections.abc import Sequence as Tokens
from dataclasses import dataclass

from pagedviz.engine.log.events.base import Token


@dataclass(frozen=True, eq=False, slots=True)
class Link:
    """What a full block holds: its tokens behind those of `parent`. `salt` is the first link's, None in all others."""

    block_hash: bytes
    parent: "Link | None"
    tokens: tuple[Token, ...]
    salt: str | None

    @property
    def parent_short(self) -> str | None:
        return self.parent.short if self.parent else None

    @property
    def key(self) -> str:
        """The whole hash in hexadecimal digits: equal only for the same tokens behind the same prefix and salt."""
        return self.block_hash.hex()

    @property
    def short(self) -> str:
        """The hash as the screen and the events show it: 8 hexadecimal digits."""
        return self.block_hash.hex()[:8]


def block_hash(parent: bytes, tokens: tuple[Token, ...], salt: str | None) -> bytes:
    """32 bytes. The tokens 7 and "7" hash differently, and so do a salt and no salt.

    Example: block_hash(b"", ("a", "b"), None).hex()[:8] -> "b5364dbd".
    """
    return hashlib.sha256(parent + repr((tokens, salt)).encode()).digest()


def link(parent: Link | None, tokens: Tokens[Token], salt: str | None) -> Link:
    """The link of a block of these tokens after `parent`. Only the first takes `salt`; the chain does the rest."""
    own, salt = tuple(tokens), salt if parent is None else None
    return Link(block_hash(parent.block_hash if parent else b"", own, salt), parent, own, salt)


def chain(last: Link) -> list[Link]:
    """All links up to this one, the first of the sequence first."""
    links: list[Link] = []
    link_: Link | None = last
    while link_ is not None:
        links.append(link_)
        link_ = link_.parent
    return links[::-1]


def same_content(one: Link, other: Link) -> bool:
    """Whether salt and tokens are the same from position 0 on. Compares them themselves, not only their hashes."""
    a: Link | None = one
    b: Link | None = other
    while a is not b:
        if a is None or b is None or a.tokens != b.tokens or a.salt != b.salt:
            return False
        a, b = a.parent, b.parent
    return True
