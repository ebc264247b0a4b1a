"""Write the recorded tables into benchmarks/README.md, between its two marks: python -m benchmarks.readme"""

from pagedviz import measurements
from pagedviz.measurements import Measurements, Row
from pagedviz.run.play import PROJECT

README = PROJECT / "benchmarks/README.md"
BEGIN, END = "<!-- python -m benchmarks.readme writes from here -->", "<!-- to here -->"


def block(found: Measurements) -> str:
    """The text between the marks: the machine, and the tables of decode and prefill."""
    m = found.machine
    peers = ", ".join(f"{name} ({version})" for name, version in found.peers.items())
    head = (
        f"Recorded on one {m['gpu']}, {m['date']}: driver {m['driver']}, torch {m['torch']}, triton {m['triton']}.\n"
        f"Peers: {peers}.\n"
        f"Its memory was read at {found.ceilings['read']:,.0f} GB/s at most and copied at "
        f"{found.ceilings['copy']:,.0f} GB/s, both ways counted.\n"
        "In brackets: a peer's time over this project's in the same run. All rows: `benchmarks/recorded/h200.json`."
    )
    return "\n\n".join([head, *(_table(found.table(name)) for name in ("decode", "prefill") if found.table(name))])


def written(text: str, found: Measurements) -> str:
    """The README with the block in its place."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{block(found)}\n\n{END}{rest.split(END)[1]}"


def _table(rows: list[Row]) -> str:
    head, *lines = measurements.text_table(rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *lines])


if __name__ == "__main__":
    recorded = measurements.load(measurements.RECORDED)
    README.write_text(written(README.read_text(encoding="utf-8"), recorded), encoding="utf-8")
