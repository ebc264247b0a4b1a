"""The run's requests served in other ways, each with a scheduler and a block manager of its own; no tensor is read."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NoReturn

from pagedviz import probe
from pagedviz.engine.log.events.base import Event, OperationRefused
from pagedviz.engine.policies.profiles import POLICIES
from pagedviz.engine.requests.timetable import StepCounts, idle_seats, timetable
from pagedviz.probe import Refused, Way, whole_number
from pagedviz.run.play import Player
from pagedviz.runtime.running.recording import Moment
from pagedviz.scenario.operations import MAX_STEPS, EngineSteps, Submit
from pagedviz.scenario.scenario import Scenario
from pagedviz.scenario.settings import SCHEDULER_RANGES, CacheConfig

KINDS = {function.__name__: kind for kind, functions in POLICIES.items() for function in functions}


def answer(question: probe.Timetable, moment: Moment) -> dict[str, Any]:
    """`stage` is the run so far, `others` the other ways, each with its steps and its idle places in the batch."""
    own, others = served(moment, question.ways)
    return {
        "max_num_seqs": moment.scenario.cache.scheduler.max_num_seqs if question.seats else None,
        "requests": own.submitted,
        "stage": table(own),
        "others": [{"policies": list(way.policies), **table(other)} for way, other in others],
    }


class Served:
    """The requests of a run, submitted or refused, and a row for each step."""

    def __init__(self, scenario: Scenario) -> None:
        self.limits = scenario.cache.scheduler
        self.submitted: list[str] = []
        self.refused: list[str] = []
        events: list[Event] = []
        player = Player(scenario.cache, scenario.seed, _no_word)
        for op in scenario.ops:
            happened = [happening.event for happening in player.perform(op)]
            events += happened
            if isinstance(op, Submit):
                (self.refused if isinstance(happened[0], OperationRefused) else self.submitted).append(op.seq_id)
        self.rows = timetable(events)


def served(moment: Moment, ways: Iterable[Way]) -> tuple[Served, list[tuple[Way, Served]]]:
    """The run so far, and its requests served to the end in each way; Refused if one of them is refused."""
    scenario = moment.scenario
    if unknown := [op.seq_id for op in scenario.ops if isinstance(op, Submit) and not op.says]:
        raise Refused(f"The model generates {unknown[0]}'s words; only requests with given words are served again.")
    own, others = Served(scenario), []
    for way in (Way(*fields) for fields in ways):
        cache = _cache(scenario.cache, way)
        other = Served(replace(scenario, cache=cache, ops=(*scenario.ops, EngineSteps(MAX_STEPS))))
        if other.submitted != own.submitted:
            raise Refused(f"By {', '.join(way.policies)} other requests are refused: {_listed(other.refused)}.")
        others.append((way, other))
    return own, others


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _cache(cache: CacheConfig, way: Way) -> CacheConfig:
    if unknown := [name for name in way.policies if name not in KINDS]:
        raise Refused(f"There is no policy {unknown[0]}.")
    whole_number("budget", way.budget, 0, SCHEDULER_RANGES["max_num_batched_tokens"][1])
    policies = dict(cache.policies) | {KINDS[name]: name for name in way.policies}
    limits = cache.scheduler
    if way.budget:
        limits = replace(limits, max_num_batched_tokens=way.budget)
    return replace(cache, policies=tuple(sorted(policies.items())), scheduler=limits)


def _no_word(seq_id: str, position: int) -> NoReturn:
    raise Refused(f"{seq_id} has no given words left.")


def table(run: Served) -> dict[str, Any]:
    """A run as plain JSON."""
    return {
        "budget": run.limits.max_num_batched_tokens,
        "steps": [_step(row) for row in run.rows],
        "idle": idle_seats(run.rows, run.limits.max_num_seqs),
    }


def _step(row: StepCounts) -> dict[str, Any]:
    return {
        "engine_step": row.engine_step,
        "unfinished": list(row.unfinished),
        "admitted": row.admitted,
        "preempted": row.preempted,
        "computed": row.computed,
        "prefilled": row.prefilled,
    }
