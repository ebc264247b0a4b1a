"""Small runs of what a real server has: windows, groups, drafts, a host tier, samples and beams."""

from typing import Any

from pagedviz.run.play import Happening, Player, planner
from pagedviz.scenario.scenario import Scenario, from_json

Data = dict[str, Any]
ADDRESS = "Four score and seven years ago our fathers brought forth on this continent"
UNION = "We the people of the United States in order to form a more perfect union and"
V1: Data = {"profile": "vllm-v1", "num_blocks": 12, "prefix_caching": True}

CASES: dict[str, tuple[Data, list[Data]]] = {
    # blocks fall out of the window while A grows; B's prompt is hit, without what the window does not see
    "window": (
        V1 | {"window": 6},
        [
            {"add": "A", "text": "Four score and seven years ago our"},
            *({"append": "A", "text": text} for text in ("fathers brought", "forth on this", "continent a new")),
            {"add": "B", "text": ADDRESS},
            {"append": "B", "text": "new"},
        ],
    ),
    # V0 has no null block until a window first needs one; a fork takes over what was passed
    "window-v0": (
        {"profile": "vllm-v0", "num_blocks": 12, "window": 5},
        [
            {"add": "A", "text": ADDRESS},
            {"append": "A", "text": "a new nation conceived"},
            {"append": "A", "text": "in"},
            {"fork": "A", "as": "B"},
            {"append": "B", "text": "on this"},
            {"append": "A", "text": "on that day"},
            {"free": "A"},
        ],
    ),
    # a table for the layers that see all, and one for those that see six tokens
    "groups": (
        V1 | {"groups": [None, 6], "num_blocks": 20},
        [
            {"add": "A", "text": "Four score and seven years ago our"},
            *({"append": "A", "text": text} for text in ("fathers brought", "forth on this", "continent a new")),
            {"add": "B", "text": ADDRESS},
            {"append": "B", "text": "new"},
            {"free": "A"},
        ],
    ),
    "groups-served": (
        V1 | {"groups": [None, 6, 3], "num_layers": 3, "num_blocks": 30, "scheduler": {"max_num_batched_tokens": 8}},
        [
            {"submit": "A", "text": ADDRESS, "max_tokens": 5},
            {"submit": "B", "text": "We the people", "max_tokens": 4},
            {"step": 12},
        ],
    ),
    # drafts that are given, of which the model says none itself; then the drafter's, of which it says some
    "drafts": (
        V1,
        [
            {"add": "A", "text": "Four score and seven years ago"},
            {"draft": "A", "text": "we the people of"},
            {"verify": "A"},
            *[{"draft": "A", "tokens": 3}, {"verify": "A"}] * 3,
            {"append": "A", "text": "our"},
        ],
    ),
    # trims the blocks of what it rolls back; in two groups
    "drafts-groups": (
        V1 | {"groups": [None, 4], "num_blocks": 24, "policies": {"rollback": "trim_blocks"}},
        [
            {"add": "A", "text": "Four score and seven years ago"},
            {"draft": "A", "text": "we the people of the United"},
            {"verify": "A"},
            *[{"draft": "A", "tokens": 3}, {"verify": "A"}] * 2,
        ],
    ),
    "speculation": (
        V1 | {"speculation": {"num_drafts": 4, "load_limit": 6}},
        [
            {"submit": "A", "text": "Four score and seven years", "max_tokens": 9},
            {"submit": "B", "text": "We the people", "max_tokens": 7},
            {"step": 12},
        ],
    ),
    # stores and loads that finish, fail and are cancelled
    "tier": (
        V1 | {"num_blocks": 6, "host_chunks": 8, "policies": {"host_write": "when_asked"}},
        [
            {"add": "A", "text": ADDRESS},
            {"store": "A"},
            {"finish": 1},
            {"free": "A"},
            {"add": "B", "text": UNION + " establish justice"},
            {"store": "B"},
            {"fail": 2},
            {"free": "B"},
            {"load": ADDRESS},
            {"cancel": 3},
            {"load": ADDRESS},
            {"finish": 4},
            {"add": "C", "text": ADDRESS},
            {"add": "D", "text": "We the people of"},
            {"store": "D"},
        ],
    ),
    # what is evicted is written to the host, and a request that begins so waits until it is back
    "tier-served": (
        V1 | {"num_blocks": 6, "host_chunks": 6, "policies": {"host_write": "write_back"}},
        [
            {"submit": "A", "text": ADDRESS, "max_tokens": 2},
            {"step": 6},
            {"submit": "B", "text": UNION, "max_tokens": 3},
            {"step": 9},
            {"submit": "C", "text": ADDRESS, "max_tokens": 3},
            {"step": 9},
        ],
    ),
    "beams": (
        {"profile": "vllm-v0", "num_blocks": 16},
        [{"submit": "A", "text": "We the people", "max_tokens": 6, "beams": 3}, {"step": 12}],
    ),
    # three by chance beside one, until there are too few blocks for all
    "samples": (
        V1 | {"fork": True, "num_blocks": 10},
        [
            {"submit": "A", "text": "Four score and seven years ago our", "max_tokens": 6, "samples": 3},
            {"submit": "B", "text": "We the people of the United States in", "max_tokens": 6},
            {"step": 20},
        ],
    ),
}


def scenario_of(name: str) -> Scenario:
    cache, ops = CASES[name]
    return from_json({"pagedviz": 1, "cache": {"block_size": 4, "host_blocks": 0} | cache, "ops": ops})


def played(name: str) -> tuple[Player, list[Happening]]:
    """A case as the engine plays it, with the model's own words."""
    scenario = scenario_of(name)
    player = planner(scenario.cache, scenario.seed)
    return player, [happening for op in scenario.ops for happening in player.perform(op)]
