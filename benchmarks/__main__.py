"""Measure this machine's GPU: every table, with every peer that is installed, on the screen and as JSON.

    make bench        or        python -m benchmarks [--rounds 15] [--alone] [--only TABLE ...] [--json FILE]

Without --json the file is benchmarks/measured.json, which the app's page "Speed" shows. It is written after each table.
"""

from pathlib import Path

from benchmarks import ceilings, copies, decode, prefill, tables
from pagedviz.measurements import MEASURED, Measurements, Row

TABLES = {**decode.TABLES, **prefill.TABLES, "moves": copies.by_shape}


def main() -> None:
    parser = tables.arguments(__doc__, TABLES)
    parser.add_argument("--json", type=Path, default=MEASURED)
    chosen = parser.parse_args()
    contest = tables.contest_of(chosen)
    machine, peers, limits = tables.machine(), contest.versions(), ceilings.measure(chosen.rounds)
    print(", ".join(machine.values()))
    print("\n".join(f"{name}: {version}" for name, version in peers.items()))
    print(f"ceilings: copy {limits['copy']:.0f} GB/s counting both ways, read {limits['read']:.0f} GB/s")
    rows: list[Row] = []
    for name in chosen.only:
        rows += tables.printed(TABLES[name](contest))
        chosen.json.write_text(Measurements(machine, peers, limits, tuple(rows)).to_text(), encoding="utf-8")
    print(f"\nWritten to {chosen.json}")


if __name__ == "__main__":
    main()
