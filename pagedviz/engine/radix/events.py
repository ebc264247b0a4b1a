"""What can happen to the radix tree: one frozen event an atomic change, whose docstring is its sentence.

A family of its own: the block manager's events are what a run's steps and the stage know.
"""

from dataclasses import dataclass

from pagedviz.engine.log.events.base import Token
from pagedviz.engine.log.text.record import Record


@dataclass(frozen=True)
class RadixEvent(Record):
    """Something happened to the tree."""


@dataclass(frozen=True)
class RadixMatched(RadixEvent):
    """A prompt of {num_given:token} found {num_tokens} of them cached, along nodes {nodes}: whole pages, and never its
    last token, which must be computed. The nodes count as used at time {time}."""

    num_given: int
    num_tokens: int
    nodes: tuple[int, ...]
    time: int


@dataclass(frozen=True)
class RadixRevisited(RadixEvent):
    """Of {num_given:token} to be kept, {num_tokens} are in the tree already, along nodes {nodes}. The caller frees
    {duplicates:page} of its own. The nodes count as used at time {time}."""

    num_given: int
    num_tokens: int
    nodes: tuple[int, ...]
    duplicates: tuple[int, ...]
    time: int


@dataclass(frozen=True)
class RadixInserted(RadixEvent):
    """Leaf {node} was added below node {parent}: {tokens:token} in pages {pages}, which the tree owns from now on."""

    node: int
    parent: int
    salt: str | None
    tokens: tuple[Token, ...]
    pages: tuple[int, ...]
    time: int


@dataclass(frozen=True)
class RadixSplit(RadixEvent):
    """Node {node} was split, because a match ended inside it: its first {num_tokens:token} are node {upper} now, and
    node {node} hangs below with the rest. No page moved, and whoever locked node {node} holds both."""

    node: int
    upper: int
    num_tokens: int


@dataclass(frozen=True)
class RadixLocked(RadixEvent):
    """Node {node} was locked with its path, nodes {nodes}. {num_tokens:token} fewer can be evicted."""

    node: int
    nodes: tuple[int, ...]
    num_tokens: int


@dataclass(frozen=True)
class RadixUnlocked(RadixEvent):
    """One lock of node {node} and its path, nodes {nodes}, was given up. {num_tokens:token} more can be evicted."""

    node: int
    nodes: tuple[int, ...]
    num_tokens: int


@dataclass(frozen=True)
class RadixEvicted(RadixEvent):
    """Leaf {node} was evicted: of the leaves that nobody locks it was first by {policy}. {tokens:token} are forgotten,
    and pages {pages} are free."""

    node: int
    policy: str
    tokens: tuple[Token, ...]
    pages: tuple[int, ...]
