"""The excerpt of our source that is shown beside a step."""

from pagedviz.run import source
from pagedviz.run.play import planner
from pagedviz.run.source import PROJECT, SourceLine
from tests.run.run_cases import RUN


def test_excerpt_of_every_step_is_the_function_with_its_line():
    player = planner(RUN.cache, RUN.seed)
    for op in RUN.ops:
        for happening in player.perform(op):
            shown = source.excerpt(happening.source)
            line = shown["lines"][happening.source.line - shown["first_line"]]
            written = (PROJECT / shown["file"]).read_text().splitlines()[happening.source.line - 1]
            assert line.strip() == written.strip()
            assert "_report(" in line or line.strip().startswith("raise ")
            assert shown["lines"][0].startswith("def ")
            assert shown["name"].startswith(("BlockManager.", "BlockChanges."))
            assert len(shown["lines"]) < 60


def test_line_outside_of_any_function_shows_the_file():
    shown = source.excerpt(SourceLine("pagedviz/scenario/tokenizer.py", 1))
    assert (shown["name"], shown["first_line"]) == ("", 1)
