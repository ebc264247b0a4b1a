"""What the benchmarks share: their command line, the machine, and tables on the screen."""

import argparse
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from importlib.metadata import version

import torch

import kernels
from benchmarks.contest import Contest
from benchmarks.peers import PEERS
from pagedviz.measurements import OURS, TABLES, Row

Table = Callable[[Contest], Iterator[Row]]


def arguments(doc: str | None, tables: Mapping[str, Table]) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="the median of so many (default 15)")
    parser.add_argument("--alone", action="store_true", help="without peers")
    parser.add_argument("--only", nargs="+", choices=list(tables), default=list(tables), metavar="TABLE")
    return parser


def contest_of(chosen: argparse.Namespace) -> Contest:
    """The contest of the options. Ends the program with one sentence if there is no GPU to measure."""
    if kernels.device().type != "cuda":
        sys.exit("An interpreted launch says nothing about speed: the benchmarks need an NVIDIA GPU.")
    return Contest(chosen.rounds, () if chosen.alone else PEERS)


def machine() -> dict[str, str]:
    """The machine that the numbers come from."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
    try:
        driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        driver = "unknown"
    return {
        "gpu": torch.cuda.get_device_name(),
        "driver": driver,
        "torch": torch.__version__,
        "triton": version("triton"),
        "python": platform.python_version(),
        "date": date.today().isoformat(),
    }


def printed(rows: Iterator[Row]) -> list[Row]:
    """Print each row when it is measured; a ratio is the time over this project's time in the same case."""
    kept: list[Row] = []
    ours: float | None = None
    for row in rows:
        if not kept or kept[-1].table != row.table:
            print(f"\n{TABLES[row.table]}\n{'':34}{'':22}{'us':>10}{row.unit:>11}{'ratio':>8}{'error':>10}  timed by")
        case = row.case if not kept or kept[-1].case != row.case else ""
        ours = row.microseconds if row.who == OURS else ours
        if row.reason:
            print(f"{case:34}{row.who:22}{row.reason:>10}", flush=True)
        else:
            assert row.microseconds is not None
            ratio = f"{row.microseconds / ours:.2f}" if ours else ""
            error = "exact" if row.error == 0 else f"{row.error:.1e}"
            print(
                f"{case:34}{row.who:22}{row.microseconds:10.1f}{row.rate:11.1f}{ratio:>8}{error:>10}  {row.timed}",
                flush=True,
            )
        kept.append(row)
    return kept


def main(doc: str | None, tables: Mapping[str, Table]) -> None:
    """A benchmark by itself: its tables on the screen."""
    chosen = arguments(doc, tables).parse_args()
    contest = contest_of(chosen)
    print(", ".join(machine().values()), contest.versions())
    for name in chosen.only:
        printed(tables[name](contest))
