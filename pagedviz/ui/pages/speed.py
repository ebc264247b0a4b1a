"""Speed: what `make bench` measured, on this machine, else on the one whose numbers lie in the repository."""

from collections.abc import Sequence

import streamlit as st

from pagedviz import measurements
from pagedviz.figures.kernel_bandwidth import bandwidth_by_block_size, rate_by_case
from pagedviz.measurements import BadMeasurements, Measurements, Row
from pagedviz.ui.elements.chart import chart
from pagedviz.ui.elements.markdown import plain
from pagedviz.ui.elements.text_table import text_table

HOW = (
    "Each number is the time of one launch: the median over rounds in which a CUDA graph replays launches over pools "
    "that together are larger than the L2 cache, with the blocks in random order. Who is timed otherwise is named "
    "below the table. Before the clock ran, every output was compared with dense attention in float64. In brackets "
    "stands the time over this project's in the same run; the fastest of a case is bold. GB/s counts the keys and "
    "values that must be read; TFLOP/s counts the products of queries, keys and values that the causal mask leaves. "
    "The dashed line is what a plain read of 4 GiB reached in the same run, and no limit: a replay may find a part of "
    "its pool still in the L2 cache. What is called dense attends to keys and values that lie side by side, with no "
    "table."
)
HERE = (
    "To measure this machine's NVIDIA GPU, run `make bench` in the project's folder. It takes some minutes, prints the "
    "tables and writes `benchmarks/measured.json`, which this page then shows. Kernels by others take part if they are "
    'installed: `.venv/bin/pip install flashinfer-python`, `.venv/bin/pip install "jax[cuda13]"`.'
)


def show() -> None:
    st.title("Speed", anchor=False)
    found = _found()
    st.markdown(HERE)
    if found is None:
        return
    st.markdown(f"**{found.label}.**")
    st.markdown(HOW)
    for name in measurements.TABLES:
        rows = found.table(name)
        if not rows:
            continue
        st.header(measurements.TABLES[name], anchor=False)
        if name == "block size":
            _by_block_size(found, rows)
            continue
        if name in ("decode", "prefill"):
            half = [row for row in rows if row.kv_dtype == row.dtype]
            top = found.ceilings["read"] if name == "decode" else None
            chart(rate_by_case(half, top), f"speed-{name}", f"{measurements.TABLES[name]}: {rows[0].unit} by case")
        _table(rows)
    _machine(found)


def _found() -> Measurements | None:
    """This machine's measurements, else the recorded ones. A file that cannot be read is one sentence."""
    last = ""
    for path in (None, measurements.RECORDED):
        try:
            return measurements.load(path)
        except BadMeasurements as error:
            # Where this machine has not been measured, both are the recorded file: it is reported once.
            if str(error) != last:
                last = str(error)
                st.warning(f"{last}.")
    return None


def _by_block_size(found: Measurements, rows: Sequence[Row]) -> None:
    shapes = list(dict.fromkeys(row.shape for row in rows))
    st.markdown(
        "A smaller block wastes fewer slots, and the kernel looks up more of them. What that costs is what a line "
        "loses from right to left."
    )
    shape = st.segmented_control("Batch", shapes, default=shapes[0], key="speed-shape") or shapes[0]
    chosen = [row for row in rows if row.shape == shape]
    chart(bandwidth_by_block_size(chosen, found.ceilings["read"]), "speed-block-size", f"GB/s by block_size, {shape}")
    _table(chosen)


def _table(rows: Sequence[Row]) -> None:
    """Show all numbers as text; below them, which kernels are missing and why, and which were timed differently."""
    cases = measurements.cases(rows)
    head, *lines = measurements.text_table(rows)
    text_table(measurements.TABLES[rows[0].table], head, lines)
    notes: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.reason:
            notes.setdefault((row.who, row.reason), []).append(row.case)
        elif row.timed != "graph":
            notes.setdefault((row.who, f"timed by {row.timed}, not by graph replay"), []).append(row.case)
    sentences = []
    for (name, note), where in notes.items():
        few = "; ".join(where) if len(where) < 4 else f"{len(where)} of {len(cases)} cases"
        sentences.append(f"{name}, {'every case' if len(where) == len(cases) else few}: {plain(note)}.")
    if sentences:
        st.caption("  \n".join(sentences))


def _machine(found: Measurements) -> None:
    m = found.machine
    st.header("Machine", anchor=False)
    st.markdown(
        f"{m['gpu']}, driver {m['driver']}, torch {m['torch']}, triton {m['triton']}, Python {m['python']}, "
        f"{m['date']}. A plain read of its memory reached {found.ceilings['read']:,.0f} GB/s, a copy "
        f"{found.ceilings['copy']:,.0f} GB/s, both ways counted."
    )
    st.markdown("\n".join(f"- {name}: {version}" for name, version in found.peers.items()))
