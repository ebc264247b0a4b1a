"""Where engines differ. A policy is one function; a profile is one choice of each, under a real engine's name."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pagedviz.engine.admission import (
    Admission,
    PromptBlocks,
    above_watermark,
    blocks_for_prompt,
    blocks_when_scheduled,
    first_chunk_fits,
    outputs_reserved,
    whole_prompt_fits,
)
from pagedviz.engine.batching import Batching, prefill_first, running_first, static_batches
from pagedviz.engine.chunking import Chunking, never_split, split, split_first_only
from pagedviz.engine.free_queue import FreeQueue, Recency
from pagedviz.engine.orders import Order, by_priority, first_come, longest_prefix_first
from pagedviz.engine.tier_policies import WritePolicy, on_second_hit, when_asked, write_back, write_through
from pagedviz.engine.victims import Preemption, Victim, fewest_outputs, last_admitted, least_urgent, recompute, swap
from pagedviz.engine.windows import WindowRelease, below_window, window_and_two_blocks

# --- free order: where a block goes that nobody names any more ---


@dataclass(frozen=True, slots=True)
class Freed:
    """A block on its way back. `cached`: it keeps its tokens and may be hit until it goes out again.

    `run` holds the blocks that the same operation has put before the head so far. `recency` is (the engine step in
    which a sequence that named it was last scheduled, minus its logical block): the smaller goes out first.
    """

    block: int
    cached: bool = False
    recency: Recency = (0, 0)
    run: list[int] = field(default_factory=list)


FreeOrder = Callable[[FreeQueue, Freed], int]


def head_of_queue(queue: FreeQueue, freed: Freed) -> int:
    """Blocks freed together go before the head of the free queue as one run, in the order in which they were freed.

    Example: a table [1, 2, 3] is freed from its tail, so 3, 2, 1 take places 0, 1, 2 and 3 goes out next.
    Source: vLLM V0's naive allocator (last in, first out) and V1's `free_blocks` for blocks without a hash.
    """
    queue.insert(freed.block, freed.run[-1] if freed.run else None)
    freed.run.append(freed.block)
    return len(freed.run) - 1


def end_of_queue(queue: FreeQueue, freed: Freed) -> int:
    """Every block goes to the end. Source: nano-vllm."""
    queue.insert(freed.block, queue.last)
    return len(queue) - 1


def cached_last(queue: FreeQueue, freed: Freed) -> int:
    """Cached blocks go to the end, so that they are evicted last; the others before the head, as one run.

    Example: [1, 2, 3] of which 1 and 2 are cached is freed before [4, 5] -> [3, 4, 5, 2, 1]. Source: vLLM V1.
    """
    return (end_of_queue if freed.cached else head_of_queue)(queue, freed)


def least_recent_first(queue: FreeQueue, freed: Freed) -> int:
    """Cached blocks go out by their last use, and of one time the deeper first; the others before all, as one run.

    Takes the longer the more blocks were used later than this one: none when frees come in order of time.
    Source: what vLLM V0 means by its evictor; V0 itself stops at the first newer block and so misses some (S30).
    """
    if not freed.cached:
        return head_of_queue(queue, freed)
    behind, place = queue.last, len(queue)
    while behind is not None and behind in queue.recency and queue.recency[behind] > freed.recency:
        behind, place = queue.before(behind), place - 1
    queue.insert(freed.block, behind, freed.recency)
    return place


# --- publish: when the full blocks of a sequence get their hashes ---

Moment = Literal["scheduled", "written"]
Publish = Callable[[Moment], bool]


def when_scheduled(moment: Moment) -> bool:
    """Before the launch that fills them. A later sequence of the same step may then name a block that is being filled.

    Sound only because the launch stores every K and V of a layer before anybody attends in it. Source: vLLM V1.
    """
    return moment == "scheduled"


def when_written(moment: Moment) -> bool:
    """After the launch that has filled them. Source: nano-vllm, and vLLM V0, which marks blocks as computed."""
    return moment == "written"


# --- duplicates: a block was filled with what another cached block holds already ---


class Duplicate(NamedTuple):
    """`entry` is the block that the table names from now on, `findable` those that the map names."""

    entry: int
    findable: tuple[int, ...]


Duplicates = Callable[[int, int], Duplicate]


def kept(cached: int, filled: int) -> Duplicate:
    """Both stay, and the older is hit. No table entry ever changes. Source: vLLM V1."""
    return Duplicate(filled, (cached, filled))


def collapsed(cached: int, filled: int) -> Duplicate:
    """The table names the cached block, and the filled one is free again. Source: vLLM V0's promotion."""
    return Duplicate(cached, (cached,))


def last_writer(cached: int, filled: int) -> Duplicate:
    """The map names the block that was filled last; the older one can be hit no more. Source: nano-vllm."""
    return Duplicate(filled, (filled,))


# --- rollback: what becomes of blocks that only rejected drafts had filled ---

Rollback = Callable[[int, int], int]  # (entries of the table, entries that tokens need) -> entries that stay


def keep_blocks(entries: int, needed: int) -> int:
    """They stay, for the next tokens will want them. Source: vLLM V1."""
    return entries


def trim_blocks(entries: int, needed: int) -> int:
    """They are freed at once, and taken again when they are needed."""
    return needed


@dataclass(frozen=True)
class Profile:
    """One real engine's choices.

    `null_block`: block 0 is never handed out, and pads the tables. `fork`: sequences may share a partly filled block,
    which makes copy-on-write possible. All others are functions, each of a kind in `POLICIES`, where it is explained.

    Where an engine has no such thing the choice is ours: nano-vllm has no windows, drafts or host tier, V0 no host tier
    and no prefix caching beside a window. SGLang keeps a second pool for layers with a window; groups here share one.
    """

    name: str
    null_block: bool
    fork: bool
    free_order: FreeOrder
    publish: Publish
    duplicates: Duplicates
    batching: Batching
    chunking: Chunking
    order: Order
    admission: Admission
    prompt_blocks: PromptBlocks
    victim: Victim
    preemption: Preemption
    rollback: Rollback
    window_release: WindowRelease
    host_write: WritePolicy


PROFILES = {
    profile.name: profile
    for profile in (
        Profile(
            name="vllm-v0",
            null_block=False,
            fork=True,
            free_order=least_recent_first,
            publish=when_written,
            duplicates=collapsed,
            batching=prefill_first,
            chunking=never_split,
            order=first_come,
            admission=above_watermark,
            prompt_blocks=blocks_for_prompt,
            victim=last_admitted,
            preemption=recompute,
            rollback=keep_blocks,
            window_release=window_and_two_blocks,
            host_write=when_asked,
        ),
        Profile(
            name="vllm-v1",
            null_block=True,
            fork=False,
            free_order=cached_last,
            publish=when_scheduled,
            duplicates=kept,
            batching=running_first,
            chunking=split,
            order=first_come,
            admission=whole_prompt_fits,
            prompt_blocks=blocks_when_scheduled,
            victim=last_admitted,
            preemption=recompute,
            rollback=keep_blocks,
            window_release=below_window,
            host_write=write_through,
        ),
        Profile(
            name="nano-vllm",
            null_block=False,
            fork=False,
            free_order=end_of_queue,
            publish=when_written,
            duplicates=last_writer,
            batching=prefill_first,
            chunking=split_first_only,
            order=first_come,
            admission=above_watermark,
            prompt_blocks=blocks_for_prompt,
            victim=last_admitted,
            preemption=recompute,
            rollback=keep_blocks,
            window_release=below_window,
            host_write=when_asked,
        ),
        Profile(
            name="sglang",
            null_block=True,
            fork=False,
            free_order=least_recent_first,
            publish=when_written,
            duplicates=collapsed,
            batching=prefill_first,
            chunking=split,
            order=longest_prefix_first,
            admission=outputs_reserved,
            prompt_blocks=blocks_when_scheduled,
            victim=fewest_outputs,
            preemption=recompute,
            rollback=keep_blocks,
            window_release=below_window,
            host_write=write_through,
        ),
    )
}

# By field of a profile: the functions that can stand there.
POLICIES: dict[str, tuple[Callable[..., object], ...]] = {
    "free_order": (head_of_queue, end_of_queue, cached_last, least_recent_first),
    "publish": (when_scheduled, when_written),
    "duplicates": (kept, collapsed, last_writer),
    "batching": (running_first, prefill_first, static_batches),
    "chunking": (split, split_first_only, never_split),
    "order": (first_come, by_priority, longest_prefix_first),
    "admission": (whole_prompt_fits, first_chunk_fits, above_watermark, outputs_reserved),
    "prompt_blocks": (blocks_when_scheduled, blocks_for_prompt),
    "victim": (last_admitted, least_urgent, fewest_outputs),
    "preemption": (recompute, swap),
    "rollback": (keep_blocks, trim_blocks),
    "window_release": (below_window, window_and_two_blocks),
    "host_write": (when_asked, write_through, write_back, on_second_hit),
}


def policy(kind: str, name: str) -> Callable[..., object]:
    """The function of this kind and name; KeyError when there is none."""
    return {function.__name__: function for function in POLICIES[kind]}[name]
