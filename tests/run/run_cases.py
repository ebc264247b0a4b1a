"""Runs in which every event happens, for the tests of whatever has a word for each: traces, formulas, the history."""

from pagedviz.engine.policies.limits import Limits, Speculation
from pagedviz.run.play import planner
from pagedviz.scenario.operations import (
    Abort,
    Add,
    Append,
    Draft,
    EndTransfer,
    EngineSteps,
    Fork,
    Free,
    Generate,
    Load,
    Reload,
    Spill,
    Store,
    Submit,
    Verify,
)
from pagedviz.scenario.scenario import Scenario
from pagedviz.scenario.settings import CacheConfig

RUN = Scenario(
    cache=CacheConfig(num_blocks=3, block_size=2),
    ops=(
        Add("A", ("a", 7, "7")),
        Fork("A", "B"),
        Append("B", ("🙂",)),
        Add("C", ("c", "c")),
        Spill("B"),
        Reload("B"),
        Free("A"),
    ),
)

CACHED = Scenario(
    cache=CacheConfig(num_blocks=3, block_size=2, prefix_caching=True),
    ops=(
        Add("A", ("a", 7, "7"), salt="s"),
        Add("B", ("a", 7, "7"), salt="s"),
        Append("A", ("🙂",)),
        Append("B", ("🙂",)),
        Free("A"),
        Free("B"),
        Add("C", tuple("cdefgh")),
    ),
)

SERVED = Scenario(
    cache=CacheConfig(
        num_blocks=5,
        block_size=2,
        host_blocks=2,
        profile="vllm-v1",
        scheduler=Limits(max_num_batched_tokens=5, max_num_seqs=3),
        policies=(("preemption", "swap"),),
    ),
    ops=(
        Submit("A", tuple("abc"), 3),
        Submit("B", tuple("def"), 4),
        EngineSteps(4),
        Submit("C", tuple("gh"), 2, priority=1),
        Add("D", tuple("ijk")),
        EngineSteps(6),
        Abort("C"),
        EngineSteps(12),
        Free("D"),
    ),
)


def happenings(run=RUN):
    player = planner(run.cache, run.seed)
    return [happening for op in run.ops for happening in player.perform(op)]


PROMPT, OTHER = tuple("abcdefghi"), tuple("1234567890123456789012")
GROUPED = CacheConfig(profile="vllm-v1", groups=(None, 4), prefix_caching=True)
DRAFTED = CacheConfig(profile="vllm-v1", policies=(("rollback", "trim_blocks"),))
TIERED = CacheConfig(profile="nano-vllm", prefix_caching=True, num_blocks=6, host_chunks=3)


def words(num_tokens):
    """What the model says behind the prompt, as the cache of `DRAFTED` computes it."""
    *_, last = happenings(Scenario(cache=DRAFTED, ops=(Add("A", PROMPT), Generate("A", num_tokens))))
    return last.snapshot.tokens["A"][len(PROMPT) :]


SERVING = {
    "window": Scenario(cache=CacheConfig(profile="vllm-v1", window=4), ops=(Add("A", PROMPT), Append("A", ("j",)))),
    "two blocks more": Scenario(cache=CacheConfig(window=4), ops=(Add("A", PROMPT * 2), Append("A", ("j",)))),
    "groups": Scenario(cache=GROUPED, ops=(Add("A", PROMPT), Add("B", PROMPT))),
    "drafts": Scenario(
        cache=DRAFTED, ops=(Add("A", PROMPT), Draft("A", 3, (words(2)[1], "never", "said")), Verify("A"))
    ),
    "dropped": Scenario(
        cache=CacheConfig(profile="vllm-v1", speculation=Speculation(3, load_limit=1)),
        ops=(Submit("A", PROMPT, 8), EngineSteps(8)),
    ),
    "beams": Scenario(ops=(Submit("A", PROMPT, 4, beams=3), EngineSteps(8))),
    "samples": Scenario(ops=(Submit("A", PROMPT, 4, samples=2), EngineSteps(8))),
    "beams make way": Scenario(
        cache=CacheConfig(num_blocks=8), ops=(Submit("A", PROMPT, 9), Submit("B", PROMPT, 6, beams=2), EngineSteps(8))
    ),
    "a window makes way": Scenario(
        cache=CacheConfig(num_blocks=6, block_size=2, profile="vllm-v1", window=4, scheduler=Limits(4)),
        ops=(Submit("A", PROMPT[:2], 9), Submit("B", PROMPT[:5], 9), EngineSteps(8)),
    ),
    "touched": Scenario(
        cache=TIERED,
        ops=(
            *[Add("A", PROMPT), Store("A"), EndTransfer(1, "finish"), Free("A")],
            *[Add("B", OTHER[:5]), Store("B"), Free("B"), Add("C", OTHER[:17]), Free("C"), Load(PROMPT)],
        ),
    ),
    "tier": Scenario(
        cache=TIERED,
        ops=(
            *[Add("A", PROMPT), Store("A"), EndTransfer(1, "finish"), Free("A"), Add("B", OTHER), Free("B")],
            *[Load(PROMPT), EndTransfer(2, "cancel"), Load(PROMPT), EndTransfer(3, "finish")],
            *[Add("C", OTHER[:13]), Free("C"), Add("D", OTHER), Free("D"), Load(PROMPT), EndTransfer(4, "fail")],
            *[Add("E", (*OTHER[:12], "e")), Store("E"), EndTransfer(5, "fail"), Store("E"), EndTransfer(6, "cancel")],
            *[Store("E"), EndTransfer(7, "finish"), Free("E"), Add("F", PROMPT), Store("F")],
        ),
    ),
}

RUNS = (RUN, CACHED, SERVED, *SERVING.values())
