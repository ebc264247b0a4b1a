"""Events of the radix tree: one frozen record for each atomic change. Its docstring is its sentence.

They are not `Event`s: the steps of a run and the stage know only the block manager's events.
"""

from dataclasses import dataclass

from pagedviz.engine.log.events.base import Token
from pagedviz.engine.log.text.record import Record


@dataclass(frozen=True)
class RadixEvent(Record):
    """Something happened to the tree."""


@dataclass(frozen=True)
class RadixMatched(RadixEvent):
    """The tree holds {num_tokens} of a prompt's {num_given:token}, along nodes {nodes}: whole pages only, and never the
    last token, which must be computed. The nodes count as used at time {time}."""

    num_given: int
    num_tokens: int
    nodes: tuple[int, ...]
    time: int


@dataclass(frozen=True)
class RadixRevisited(RadixEvent):
    """The tree already holds {num_tokens} of the {num_given:token} to insert, along nodes {nodes}. The caller frees its
    {duplicates:duplicate page}. The nodes count as used at time {time}."""

    num_given: int
    num_tokens: int
    nodes: tuple[int, ...]
    duplicates: tuple[int, ...]
    time: int


@dataclass(frozen=True)
class RadixInserted(RadixEvent):
    """Leaf {node} was added below node {parent}: {tokens:token} in pages {pages}, which the tree owns now."""

    node: int
    parent: int
    salt: str | None
    tokens: tuple[Token, ...]
    pages: tuple[int, ...]
    time: int


@dataclass(frozen=True)
class RadixSplit(RadixEvent):
    """Node {node} was split, because a match ended inside it. Node {upper} has its first {num_tokens:token} now, and
    node {node} hangs below it with the rest. No page moved. The locks of node {node} now hold both."""

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
    """Node {node} was unlocked once, with its path, nodes {nodes}. {num_tokens:token} more can be evicted."""

    node: int
    nodes: tuple[int, ...]
    num_tokens: int


@dataclass(frozen=True)
class RadixEvicted(RadixEvent):
    """Leaf {node} was evicted: by {policy} it was the first of the leaves without a lock. It held {tokens:token}, and
    its pages {pages} are free."""

    node: int
    policy: str
    tokens: tuple[Token, ...]
    pages: tuple[int, ...]
