"""What all events have in common. Each event is one frozen record of one atomic change.

An event's docstring is the sentence that the screen shows, with the event's fields filled in. An event holds every
number that replay needs, so the log alone rebuilds each state (`replay.apply`).
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from pagedviz.engine.log.text.record import Record

Token = str | int


class Write(NamedTuple):
    """What one sequence wrote in a launch: `tokens` from `position` on, each into its slot."""

    seq_id: str
    position: int
    tokens: tuple[Token, ...]
    slots: tuple[int, ...]


@dataclass(frozen=True)
class Event(Record):
    """Something happened."""

    kinds: ClassVar[dict[str, type["Event"]]] = {}

    def __init_subclass__(cls, abstract: bool = False) -> None:
        if not abstract:
            Event.kinds[cls.__name__] = cls

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **dataclasses.asdict(self)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> "Event":
        fields = {name: frozen(value) for name, value in data.items()}
        return Event.kinds[str(fields.pop("kind"))](**fields)


def frozen(value: Any) -> Any:
    """A JSON value with its lists as tuples."""
    return tuple(map(frozen, value)) if isinstance(value, list) else value


# Fields in plain words. They say in a sentence what the numbers say, so a recorded run is not compared by them.
PHRASES = frozenset({"reason", "said", "then"})


class InGroup:
    """An event of one group's table. In a cache of one group, `group` is None and the sentence does not name it."""

    group: int | None

    @property
    def phrases(self) -> dict[str, str]:
        return {"of_group": "" if self.group is None else f" of group {self.group}"}


@dataclass(frozen=True)
class OperationRefused(Event):
    """Refused: {op}. Nothing changed."""

    op: str
