"""The measurements of `make bench`: tables of numbers and the machine that they come from, as JSON. Plain Python.

{"pagedviz_benchmark": 1, "machine": {"gpu", "driver", "torch", "triton", "python", "date"},
 "peers": {name: version}, "ceilings": {"copy": GB/s, "read": GB/s}, "rows": [...]}
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

VERSION = 1
OURS = "pagedviz"
BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
MEASURED = BENCHMARKS / "measured.json"
RECORDED = BENCHMARKS / "recorded" / "h200.json"
MACHINE = ("gpu", "driver", "torch", "triton", "python", "date")
CEILINGS = ("copy", "read")
TABLES = {
    "decode": "Decode: one new token a sequence",
    "block size": "Decode by block size",
    "head dim": "Decode by head_dim and dtype",
    "prefill": "Prefill: many new tokens a sequence",
    "moves": "Moving blocks",
}


class BadMeasurements(ValueError):
    """A file holds no measurements; the message is one sentence that names the file."""


@dataclass(frozen=True)
class Row:
    """One case run by one contestant. A contestant that could not run it has `reason`, and no numbers.

    `table` is a key of TABLES; `rate` counts in `unit`, "GB/s" or "TFLOP/s"; `error` is the largest difference from
    float64 dense attention over its largest value, 0.0 for moves that were compared bit for bit; `timed` is "graph",
    "events" or "host clock".
    """

    table: str
    case: str
    who: str
    unit: str
    block_size: int
    head_dim: int
    dtype: str
    kv_dtype: str
    microseconds: float | None = None
    rate: float | None = None
    error: float | None = None
    timed: str = ""
    reason: str = ""

    @property
    def shape(self) -> str:
        """The batch, without what a sweep varies: "GQA 8 × 8k" of "GQA 8 × 8k, block_size 16"."""
        return self.case.split(",")[0]


@dataclass(frozen=True)
class Measurements:
    """All rows of one run of the benchmarks on one machine; `here` is true if it is this machine."""

    machine: Mapping[str, str]
    peers: Mapping[str, str]
    ceilings: Mapping[str, float]
    rows: tuple[Row, ...]
    here: bool = False

    @property
    def label(self) -> str:
        """The machine and the date, as the pages show them beside the numbers."""
        where = f"{self.machine['gpu']}, {self.machine['date']}"
        if self.here:
            return f"Measured on this machine: {where}"
        return f"Recorded on one {where}; this machine's GPU has not been measured: make bench"

    def table(self, name: str) -> list[Row]:
        return [row for row in self.rows if row.table == name]

    def to_text(self) -> str:
        """The JSON that `parse` reads, with one row of numbers a line."""
        head = {"pagedviz_benchmark": VERSION, "machine": dict(self.machine), "peers": dict(self.peers)}
        head |= {"ceilings": dict(self.ceilings)}
        rows = ",\n".join("  " + json.dumps(_without_defaults(row)) for row in self.rows)
        return json.dumps(head)[:-1] + ',\n "rows": [\n' + rows + "\n]}\n"


def parse(text: str, name: str, here: bool = False) -> Measurements:
    """Read measurements; `name` is the file's, for the sentence of a BadMeasurements."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadMeasurements(f"{name} is not JSON: {error}; make bench writes it anew") from None
    version = data.get("pagedviz_benchmark") if isinstance(data, dict) else None
    if version != VERSION:
        raise BadMeasurements(
            f"{name} has version {version}, and this reads version {VERSION}; make bench writes it anew"
        )
    try:
        machine = {key: str(data["machine"][key]) for key in MACHINE}
        peers = {str(key): str(value) for key, value in data["peers"].items()}
        ceilings = {key: float(data["ceilings"][key]) for key in CEILINGS}
        rows = tuple(_row(row) for row in data["rows"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        cause = f"{type(error).__name__}: {error}"
        raise BadMeasurements(f"{name} does not hold what version {VERSION} holds ({cause})") from None
    return Measurements(machine, peers, ceilings, rows, here)


def load(path: Path | None = None) -> Measurements:
    """This machine's measurements if it has been measured, else the recorded ones; or those of `path`.

    Raises BadMeasurements.
    """
    path = path or (MEASURED if MEASURED.exists() else RECORDED)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadMeasurements(
            f"Nothing has been recorded in {path.name} yet; "
            f"on a machine with an NVIDIA GPU make bench writes {MEASURED.name}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        cause = type(error).__name__
        raise BadMeasurements(f"{path.name} cannot be read ({cause}); make bench writes {MEASURED.name}") from None
    return parse(text, path.name, here=path == MEASURED)


def contestants(rows: Iterable[Row]) -> list[str]:
    """The contestants, in the order of the rows."""
    return list(dict.fromkeys(row.who for row in rows))


def cases(rows: Iterable[Row]) -> list[str]:
    """The cases, in the order of the rows."""
    return list(dict.fromkeys(row.case for row in rows))


def text_table(rows: Sequence[Row]) -> list[list[str]]:
    """A line for each case, a column for each contestant that ran any; the first line is the head.

    A cell has the time, in brackets its ratio to this project's time in the same case, and the rate. The fastest is
    bold.
    """
    ran = [row for row in rows if row.microseconds is not None]
    columns = [name for name in contestants(rows) if any(row.who == name for row in ran)]
    table = [["case", *columns]]
    for case in cases(rows):
        here = {row.who: row for row in ran if row.case == case}
        fastest = min((row.microseconds or 0 for row in here.values()), default=0)
        ours = here[OURS].microseconds if OURS in here else None
        table.append([case, *(_cell(here.get(name), ours, fastest if len(here) > 1 else 0) for name in columns)])
    return table


def _cell(row: Row | None, ours: float | None, fastest: float) -> str:
    if row is None or row.microseconds is None:
        return "–"
    ratio = f" ({row.microseconds / ours:.2f}×)" if ours and row.who != OURS else ""
    text = f"{row.microseconds:,.1f} µs{ratio}, {row.rate:,.0f} {row.unit}"
    return f"**{text}**" if row.microseconds == fastest else text


def _row(data: dict[str, Any]) -> Row:
    row = Row(**data)
    if row.table not in TABLES:
        raise ValueError(f"there is no table {row.table!r}")
    numbers = (row.microseconds, row.rate)
    if row.reason:
        if numbers != (None, None):
            raise ValueError(f"{row.who} has a reason and numbers in {row.case}")
    elif not all(isinstance(number, int | float) and number > 0 for number in numbers):
        raise ValueError(f"{row.who} has neither numbers nor a reason in {row.case}")
    return row


def _without_defaults(row: Row) -> dict[str, Any]:
    return {key: value for key, value in asdict(row).items() if value is not None and value != ""}
