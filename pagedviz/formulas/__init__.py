"""The formula of a step with its numbers, in lines of plain text: one file for each family of events."""

from collections.abc import Mapping
from typing import Any

from pagedviz.engine.log.events.base import Event
from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.formulas import blocks, drafts, requests, transfers, windows
from pagedviz.scenario.settings import CacheConfig

FAMILIES = (blocks, windows, drafts, requests, transfers)


def lines(
    cache: CacheConfig, before: Snapshot, event: Event, after: Snapshot, refused: Mapping[str, Any] | None
) -> list[str]:
    """The computation of this step, from the states before and after it. Empty if nothing was computed."""
    of_family = (family.lines(cache, before, event, after) for family in FAMILIES)
    found = next(filter(None, of_family), None) or _of_refusal(refused)
    return [*windows.group(cache, event), *found]


def _of_refusal(refused: Mapping[str, Any] | None) -> list[str]:
    numbers = {name: value for name, value in (refused or {}).items() if isinstance(value, int)}
    return [f"{name} = {value}" for name, value in numbers.items()]
