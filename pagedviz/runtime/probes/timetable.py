"""The run's requests served in other ways, by the same scheduler on block managers of their own; no tensor is read."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pagedviz import probe
from pagedviz.engine.events import Event, OperationRefused, Token
from pagedviz.engine.policies import POLICIES
from pagedviz.engine.timetable import Row, idle_places, timetable
from pagedviz.play import Player
from pagedviz.probe import Way
from pagedviz.runtime.probes.newest import Refused, whole_number
from pagedviz.runtime.recording import Moment
from pagedviz.scenario import MAX_STEPS, SCHEDULER_RANGES, CacheConfig, EngineSteps, Scenario, Submit

KINDS = {function.__name__: kind for kind, functions in POLICIES.items() for function in functions}


def answer(asked: probe.Timetable, moment: Moment) -> dict[str, Any]:
    """`stage` is the run so far, `others` are the ways: each with its steps, and what they come to."""
    scenario = moment.scenario
    submitted = [op for op in scenario.ops if isinstance(op, Submit)]
    if unknown := [op.seq_id for op in submitted if not op.says]:
        raise Refused(f"{unknown[0]} says what the model says; only requests whose words are given are served again.")
    own = _Served(scenario)
    return {
        "max_num_seqs": scenario.cache.scheduler.max_num_seqs,
        "requests": [op.seq_id for op in submitted if str(op) not in own.refused],
        "stage": _table(scenario.cache, None, own.events),
        "others": [_other(scenario, Way(*way), own.refused) for way in asked.ways],
    }


def _other(scenario: Scenario, way: Way, refused: Sequence[str]) -> dict[str, Any]:
    cache = _cache(scenario.cache, way)
    other = _Served(replace(scenario, cache=cache, ops=(*scenario.ops, EngineSteps(MAX_STEPS))))
    if new := [op for op in other.refused if op not in refused]:
        raise Refused(f"Served by {', '.join(way.policies)}, “{new[0]}” is refused.")
    return _table(cache, way, other.events)


class _Served:
    """What happened in a run, and the submissions that were refused in it."""

    def __init__(self, scenario: Scenario) -> None:
        self.events: list[Event] = []
        self.refused: list[str] = []
        player = Player(scenario.cache, scenario.seed, _says_nothing)
        for op in scenario.ops:
            happened = [happening.event for happening in player.perform(op)]
            self.events += happened
            if isinstance(op, Submit) and isinstance(happened[0], OperationRefused):
                self.refused.append(str(op))


def _cache(cache: CacheConfig, way: Way) -> CacheConfig:
    if unknown := [name for name in way.policies if name not in KINDS]:
        raise Refused(f"There is no policy {unknown[0]}.")
    whole_number("budget", way.budget, 0, SCHEDULER_RANGES["max_num_batched_tokens"][1])
    policies = dict(cache.policies) | {KINDS[name]: name for name in way.policies}
    limits = cache.scheduler
    if way.budget:
        limits = replace(limits, max_num_batched_tokens=way.budget)
    return replace(cache, policies=tuple(sorted(policies.items())), scheduler=limits)


def _says_nothing(seq_id: str) -> Token:
    raise Refused(f"{seq_id} has no words of its own.")


def _table(cache: CacheConfig, way: Way | None, events: Sequence[Event]) -> dict[str, Any]:
    """`way` is None for the stage's own."""
    rows = timetable(events)
    return {
        "policies": None if way is None else list(way.policies),
        "budget": cache.scheduler.max_num_batched_tokens,
        "steps": [_step(row) for row in rows],
        "idle": idle_places(rows, cache.scheduler.max_num_seqs),
    }


def _step(row: Row) -> dict[str, Any]:
    return {
        "engine_step": row.engine_step,
        "unfinished": list(row.unfinished),
        "admitted": row.admitted,
        "preempted": row.preempted,
        "computed": row.computed,
        "prefilled": row.prefilled,
        "read": row.read,
        "sampled": list(row.sampled),
        "finished": row.finished,
    }
