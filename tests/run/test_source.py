"""The excerpt of our source that is shown beside a step: the line that reports the step's event."""

import ast
from functools import cache

import pytest

from pagedviz.engine.log.events.base import Event, OperationRefused
from pagedviz.run import source
from pagedviz.run.play import planner
from pagedviz.run.source import PROJECT, SourceLine
from tests.run.run_cases import RUN, RUNS, happenings


def test_excerpt_of_every_step_is_the_function_with_its_line():
    player = planner(RUN.cache, RUN.seed)
    for op in RUN.ops:
        for happening in player.perform(op):
            shown = source.excerpt(happening.source)
            line = shown["lines"][happening.source.line - shown["first_line"]]
            written = (PROJECT / shown["file"]).read_text().splitlines()[happening.source.line - 1]
            assert line.strip() == written.strip()
            assert shown["lines"][0].startswith("def ")
            assert len(shown["lines"]) < 60


@pytest.fixture(scope="module")
def lines_by_kind():
    """The lines shown for each kind of event, over runs in which every kind happens."""
    found: dict[str, set[SourceLine]] = {}
    for happening in (happening for run in RUNS for happening in happenings(run)):
        found.setdefault(happening.event.kind, set()).add(happening.source)
    return found


def test_every_kind_of_event_happens(lines_by_kind):
    missing = Event.kinds.keys() - lines_by_kind.keys()
    assert not missing, f"no run of tests/run/run_cases.py has {sorted(missing)}"


@pytest.mark.parametrize("kind", sorted(Event.kinds))
def test_the_line_shown_makes_the_event(lines_by_kind, kind):
    for line in lines_by_kind[kind]:
        statement = ast.dump(smallest_statement(line))
        # A refusal has no event of its own in the engine: it is raised there.
        expected = "Raise(" if kind == OperationRefused.__name__ else f"Call(func=Name(id='{kind}'"
        assert expected in statement, f"{kind} is shown at {line.file}:{line.line}, which does not make it"


def smallest_statement(line: SourceLine) -> ast.stmt:
    """The innermost statement that stands on a line."""
    around = [s for s in statements(line.file) if s.lineno <= line.line <= (s.end_lineno or 0)]
    return min(around, key=lambda s: (s.end_lineno or 0) - s.lineno)


@cache
def statements(file: str) -> list[ast.stmt]:
    tree = ast.parse((PROJECT / file).read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]


def test_line_outside_of_any_function_shows_the_file():
    shown = source.excerpt(SourceLine("pagedviz/scenario/tokenizer.py", 1))
    assert (shown["name"], shown["first_line"]) == ("", 1)


def test_a_statement_over_several_lines_is_known_to_its_end(lines_by_kind):
    for line in lines_by_kind["BlockHit"]:
        shown = source.excerpt(line)
        end = shown["statements"][str(line.line)]
        lit = shown["lines"][line.line - shown["first_line"] : end - shown["first_line"] + 1]
        assert "BlockHit(" in "".join(lit)
        assert "".join(lit).count("(") == "".join(lit).count(")")
