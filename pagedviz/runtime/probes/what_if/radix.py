"""The radix tree that the run's operations make, drawn node by node, beside what the blocks hit."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from pagedviz import probe
from pagedviz.engine.log.errors import CacheError
from pagedviz.engine.log.events.base import Event, Token
from pagedviz.engine.log.events.blocks import BlockHit
from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.engine.radix.manager import RadixManager
from pagedviz.engine.radix.snapshot import ROOT, RadixSnapshot
from pagedviz.probe import Refused, whole_number
from pagedviz.run.play import planner
from pagedviz.run.radix_play import RadixPlayer
from pagedviz.runtime.running.recording import Moment
from pagedviz.scenario.json_values import ScenarioError
from pagedviz.scenario.operations import Add, Append, Free, Op
from pagedviz.scenario.scenario import Scenario
from pagedviz.scenario.settings import RANGES


def answer(question: probe.Radix, moment: Moment) -> dict[str, Any]:
    """The nodes from the root down, the pages of no node, the hits of each prompt, and the tree's latest events."""
    whole_number("page_size", question.page_size, *RANGES["block_size"])
    scenario = moment.scenario
    player = played(scenario, question.page_size, moment.snapshot)
    hits = {size: played(scenario, size).hits for size in {scenario.cache.block_size} - {question.page_size}}
    hits[question.page_size] = player.hits
    blocks = tokens_hit(InBlocks(scenario).events)
    manager = player.manager
    return {
        "page_size": question.page_size,
        "block_size": scenario.cache.block_size,
        "num_pages": manager.num_pages,
        "num_free": len(manager.free_pages),
        "nodes": _nodes(manager),
        "own": _own(manager),
        "reported": [event.sentence for event in player.reported],
        "requests": [
            {
                "seq_id": op.seq_id,
                "num_tokens": len(op.tokens),
                "blocks": blocks[op.seq_id],
                "pages": {str(size): of_size[op.seq_id] for size, of_size in sorted(hits.items(), reverse=True)},
            }
            for op in scenario.ops
            if isinstance(op, Add)
        ],
    }


def played(scenario: Scenario, page_size: int, state: Snapshot | None = None) -> RadixPlayer:
    """The tree after a scenario's operations, the last of them only as far as the `state` is, if one is given."""
    player = RadixPlayer(scenario.cache, page_size)
    for i, op in enumerate(scenario.ops, 1):
        begun, done = (True, True) if state is None or i < len(scenario.ops) else _progress(op, state)
        try:
            if begun:
                player.perform(op, computed=done)
        except (CacheError, ScenarioError) as error:
            raise Refused(f"With pages of {page_size}: {error}") from None
    return player


def _progress(op: Op, state: Snapshot) -> tuple[bool, bool]:
    """Whether the last operation has begun in the tree, and whether its tokens are computed."""
    match op:
        case Add(seq_id, tokens):
            return True, state.tokens.get(seq_id) == tokens
        case Free(seq_id):
            return seq_id not in state.tokens, True
    return True, True


class InBlocks:
    """The operations of a scenario on a block manager; only operations that the tree has too are played."""

    def __init__(self, scenario: Scenario) -> None:
        self.events: list[Event] = []
        self._block_size = scenario.cache.block_size
        self._player = planner(scenario.cache, scenario.seed)
        for op in scenario.ops:
            if isinstance(op, Add | Append | Free):
                self._perform(op)

    def num_hit_tokens(self, tokens: Sequence[Token]) -> int:
        return len(self._player.manager.longest_prefix(tokens)) * self._block_size

    def add(self, seq_id: str, tokens: Sequence[Token]) -> None:
        self._perform(Add(seq_id, tuple(tokens)))

    def free(self, seq_id: str) -> None:
        self._perform(Free(seq_id))

    def _perform(self, op: Op) -> None:
        self.events += [happening.event for happening in self._player.perform(op)]


def tokens_hit(events: Iterable[Event]) -> Counter[str]:
    """Tokens of each prompt that were in cached blocks, as the block manager reported them."""
    hits: Counter[str] = Counter()
    for event in events:
        if isinstance(event, BlockHit):
            hits[event.seq_id] += len(event.tokens)
    return hits


def _nodes(manager: RadixManager) -> list[dict[str, Any]]:
    """Every node after its parent, siblings in the order they were inserted; eviction would take `next_out` first."""
    state = manager.tree.snapshot()
    free = [node for node in state.nodes if node != ROOT and not _kept(state, node)]
    next_out = min(free, key=lambda node: (manager.tree.policy(state.nodes[node]), node), default=None)
    held_by: dict[int, list[str]] = {}
    for seq_id, seq in manager.sequences.items():
        held_by.setdefault(seq.node, []).append(seq_id)
    return [
        {
            "node": node,
            "parent": state.nodes[node].parent,
            "tokens": list(state.nodes[node].tokens),
            "pages": list(state.nodes[node].pages),
            "lock_count": state.nodes[node].lock_count,
            "last_used": state.nodes[node].last_used,
            "held_by": held_by.get(node, []),
            "next_out": node == next_out,
        }
        for node in _from_the_root(state, ROOT)
    ]


def _kept(state: RadixSnapshot, node: int) -> bool:
    return bool(state.nodes[node].lock_count or state.children(node))


def _from_the_root(state: RadixSnapshot, node: int) -> list[int]:
    children = sorted(state.children(node), key=lambda child: (state.nodes[child].inserted, child))
    return [node, *(below for child in children for below in _from_the_root(state, child))]


def _own(manager: RadixManager) -> list[dict[str, Any]]:
    """Pages of no node: a running sequence's partly filled page, and pages that it has not given to the tree."""
    size, own = manager.tree.page_size, []
    for seq_id, seq in manager.sequences.items():
        for i in range(seq.num_kept, len(seq.pages)):
            own.append({"seq_id": seq_id, "tokens": seq.tokens[i * size : (i + 1) * size], "page": seq.pages[i]})
    return own
