"""The policies of each engine. A profile has one policy of each kind, under the name of a real engine."""

from collections.abc import Callable
from dataclasses import dataclass

from pagedviz.engine.policies.admission import (
    Admission,
    PromptBlocks,
    above_watermark,
    blocks_for_prompt,
    blocks_when_scheduled,
    first_chunk_fits,
    outputs_reserved,
    whole_prompt_fits,
)
from pagedviz.engine.policies.batching import Batching, prefill_first, running_first, static_batches
from pagedviz.engine.policies.chunking import Chunking, never_split, split, split_first_only
from pagedviz.engine.policies.free_orders import FreeOrder, cached_last, end_of_queue, head_of_queue, least_recent_first
from pagedviz.engine.policies.hashes import (
    Duplicates,
    Publish,
    collapsed,
    kept,
    last_writer,
    when_scheduled,
    when_written,
)
from pagedviz.engine.policies.host_writes import WritePolicy, on_second_hit, when_asked, write_back, write_through
from pagedviz.engine.policies.orders import Order, by_priority, first_come, longest_prefix_first
from pagedviz.engine.policies.rollback import Rollback, keep_blocks, trim_blocks
from pagedviz.engine.policies.victims import (
    Preemption,
    Victim,
    fewest_outputs,
    last_admitted,
    least_urgent,
    recompute,
    swap,
)
from pagedviz.engine.policies.windows import WindowRelease, below_window, window_and_two_blocks


@dataclass(frozen=True)
class Profile:
    """The choices of one real engine.

    `null_block`: block 0 is never handed out, and pads the tables. `fork`: sequences may share a partly filled block,
    which makes copy-on-write possible. Every other field is a function, one of its kind in `POLICIES`.

    Where an engine does not have a feature, the choice is ours: nano-vllm has no windows, drafts or host tier; V0 has
    no host tier, and no prefix caching with a window. SGLang has a second pool for layers with a window; here all
    groups share one pool.
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

# By field of a profile: the functions to choose from.
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
