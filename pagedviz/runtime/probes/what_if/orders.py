"""The same waiting requests served in each order, by the block manager and by the radix tree."""

from dataclasses import replace
from typing import Any

from pagedviz import probe
from pagedviz.engine.log.errors import CacheError
from pagedviz.engine.log.events.base import OperationRefused
from pagedviz.engine.log.events.blocks import BlockEvicted
from pagedviz.engine.policies.orders import Order, first_come, longest_prefix_first
from pagedviz.engine.radix.events import RadixEvicted
from pagedviz.engine.requests.serving import Prompts, one_by_one
from pagedviz.probe import Refused, whole_number
from pagedviz.runtime.probes.what_if.radix import InBlocks, played
from pagedviz.runtime.running.recording import Moment
from pagedviz.scenario.operations import Add
from pagedviz.scenario.scenario import Scenario
from pagedviz.scenario.settings import RANGES

ORDERS = (first_come, longest_prefix_first)


def answer(question: probe.Orders, moment: Moment) -> dict[str, Any]:
    """A row for each cache and order: the requests as served, the tokens that each hit, and the tokens evicted."""
    whole_number("page_size", question.page_size, *RANGES["block_size"])
    ops = moment.scenario.ops
    prompts = {op.seq_id: op.tokens for op in ops if isinstance(op, Add) and op.seq_id in question.waiting}
    if missing := [seq_id for seq_id in question.waiting if seq_id not in prompts]:
        raise Refused(f"There is no prompt {missing[0]} at this step.")
    first = next(i for i, op in enumerate(ops) if isinstance(op, Add) and op.seq_id in prompts)
    before = replace(moment.scenario, ops=ops[:first])
    waiting = {seq_id: prompts[seq_id] for seq_id in question.waiting}
    sizes = sorted({before.cache.block_size, question.page_size}, reverse=True)
    rows = [_blocks(before, waiting, order) for order in ORDERS]
    rows += [_tree(before, size, waiting, order) for size in sizes for order in ORDERS]
    return {
        "block_size": before.cache.block_size,
        "arrived": list(question.waiting),
        "num_tokens": sum(map(len, waiting.values())),
        "rows": rows,
    }


def _blocks(before: Scenario, waiting: Prompts, order: Order) -> dict[str, Any]:
    cache = InBlocks(before)
    cache.events.clear()
    served = list(one_by_one(cache, waiting, order))
    if any(isinstance(event, OperationRefused) for event in cache.events):
        raise Refused("The pool is too small for one of the waiting requests.")
    evicted = sum(isinstance(event, BlockEvicted) for event in cache.events) * before.cache.block_size
    return _row(None, order, served, evicted)


def _tree(before: Scenario, page_size: int, waiting: Prompts, order: Order) -> dict[str, Any]:
    player = played(before, page_size)
    player.reported.clear()
    try:
        served = list(one_by_one(player.manager, waiting, order))
    except CacheError as error:
        raise Refused(f"With pages of {page_size}: {error}") from None
    evicted = sum(len(event.tokens) for event in player.reported if isinstance(event, RadixEvicted))
    return _row(page_size, order, served, evicted)


def _row(page_size: int | None, order: Order, served: list[tuple[str, int]], evicted: int) -> dict[str, Any]:
    """`page_size` is None for the blocks."""
    return {
        "page_size": page_size,
        "order": order.__name__,
        "served": [list(one) for one in served],
        "hit": sum(hit for _, hit in served),
        "evicted": evicted,
    }
