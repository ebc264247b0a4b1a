"""Plays a scenario's operations on the radix tree, in place of the block manager."""

from pagedviz.engine.policies.profiles import PROFILES
from pagedviz.engine.radix.events import RadixEvent
from pagedviz.engine.radix.manager import RadixManager
from pagedviz.engine.radix.tree import RadixTree
from pagedviz.scenario.json_values import ScenarioError
from pagedviz.scenario.operations import Add, Append, Free, Op
from pagedviz.scenario.settings import CacheConfig


class RadixPlayer:
    """A tree over as many slots as the cache has on the device, in pages of `page_size`.

    `hits` counts the cached tokens that each prompt found. `reported` are the events of the last operation.
    """

    def __init__(self, cache: CacheConfig, page_size: int) -> None:
        slots = (cache.num_blocks - PROFILES[cache.profile].null_block) * cache.block_size
        self.hits: dict[str, int] = {}
        self.reported: list[RadixEvent] = []
        tree = RadixTree(page_size=page_size, report=lambda event: self.reported.append(event))
        self.manager = RadixManager(tree, slots // page_size)

    def perform(self, op: Op, computed: bool = True) -> None:
        """Play one operation. If a prompt is not `computed`, it is only admitted.

        Raises `CacheError` if there are too few pages, and `ScenarioError` for operations that the tree does not have.
        """
        self.reported = []
        match op:
            case Add(seq_id, tokens, salt):
                self.hits[seq_id] = self.manager.admit(seq_id, tokens, salt)
                if computed:
                    self.manager.keep(seq_id)
            case Append(seq_id, tokens):
                self.manager.append(seq_id, tokens)
            case Free(seq_id):
                self.manager.free(seq_id)
            case _:
                raise ScenarioError(f"the radix tree plays add, append and free, not “{op}”")
