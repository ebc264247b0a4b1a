"""Figures of what was measured: every number stands at its place, and what did not run is not drawn."""

import pytest

pytest.importorskip("plotly")

from pagedviz.figures.kernel_bandwidth import bandwidth_by_block_size, rate_by_case
from tests.benchmarks.measurement_cases import absent, row


def traces(figure):
    return {trace.name: trace for trace in figure.data}


def test_bandwidth_stands_at_its_block_size_in_order_and_the_ceiling_is_a_line():
    sweep = [
        row("64", rate=64.0, block_size=64),
        row("8", rate=8.0, block_size=8),
        row("8", "Other", 7.0, block_size=8),
    ]
    figure = bandwidth_by_block_size([*sweep, absent("64", "Other", "no")], 100.0)
    drawn = traces(figure)
    assert (drawn["pagedviz"].x, drawn["pagedviz"].y) == (("8", "64"), (8.0, 64.0))
    assert (drawn["Other"].x, drawn["Other"].y) == (("8",), (7.0,))
    assert figure.layout.xaxis.categoryarray == ("8", "64")
    assert [shape.y0 for shape in figure.layout.shapes] == [100.0]
    assert figure.layout.yaxis.range[1] > 100.0
    # Beside the line its name would lie on another line that comes near it.
    assert figure.layout.xaxis.title.text == "block_size; dashed: 100 GB/s, a plain read"
    assert not figure.layout.annotations
    assert bandwidth_by_block_size([row("8", rate=200.0)], 100.0).layout.yaxis.range[1] > 200.0


def test_a_contestant_looks_the_same_in_every_figure_whoever_could_not_run():
    rows = [row("A"), absent("A", "Other", "no"), row("A", "Third"), row("B"), row("B", "Other"), row("B", "Third")]
    looks = [
        {name: (trace.marker.symbol, trace.line.color or trace.marker.color) for name, trace in traces(figure).items()}
        for figure in (rate_by_case(rows), bandwidth_by_block_size(rows, None))
    ]
    assert looks[0] == looks[1]
    assert list(looks[0]) == ["pagedviz", "Other", "Third"]
    assert len(set(looks[0].values())) == 3


def test_long_names_are_in_lines_and_whole_under_the_pointer():
    (drawn,) = rate_by_case([row("8192 new, block_size 16")]).data
    assert drawn.y == ("8192 new,<br>block_size 16",)
    assert [list(told) for told in drawn.customdata] == [["8192 new, block_size 16", 5.0]]


def test_rates_stand_at_their_cases_the_first_on_top_and_who_ran_nothing_is_not_there():
    rows = [row("A", rate=1.0), row("B", rate=2.0), row("B", "Other", 3.0), absent("A", "Third", "not installed")]
    figure = rate_by_case(rows, 4.0)
    drawn = traces(figure)
    assert (drawn["pagedviz"].x, drawn["pagedviz"].y) == ((1.0, 2.0), ("A", "B"))
    assert (drawn["Other"].x, drawn["Other"].y) == ((3.0,), ("B",))
    assert set(drawn) == {"pagedviz", "Other"}
    assert figure.layout.yaxis.categoryarray == ("B", "A")
    assert [shape.x0 for shape in figure.layout.shapes] == [4.0]
    assert not rate_by_case(rows).layout.shapes
