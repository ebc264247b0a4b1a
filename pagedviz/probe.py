"""Questions that only the tensors can answer: put to one state of a run, answered by the compute process.

A probe is data; what answers it is a function of the same name in `pagedviz/runtime/probes/`. An answer is plain JSON,
or {"refused": one sentence}.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

Answer = Mapping[str, Any]


@dataclass(frozen=True)
class Probe:
    """Something to ask. `Probe.kinds` has every kind by its name."""

    kinds: ClassVar[dict[str, type["Probe"]]] = {}

    def __init_subclass__(cls) -> None:
        Probe.kinds[cls.__name__] = cls

    def to_json(self) -> dict[str, Any]:
        return {"kind": type(self).__name__, **dataclasses.asdict(self)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Probe":
        fields = dict(data)
        return Probe.kinds[str(fields.pop("kind"))](**fields)


@dataclass(frozen=True)
class Lens(Probe):
    """What the decode kernel did for the newest token of a sequence, turn by turn, as it reports itself.

    `num_splits` programs share the sequence.
    """

    seq_id: str
    layer: int
    head: int
    num_splits: int = 1


@dataclass(frozen=True)
class Launch(Probe):
    """The tensors that the step's launch was given: block_tables, seq_lens, slot_mapping, query_start_loc."""
