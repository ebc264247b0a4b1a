"""Timetable: how many tokens each request computes in each engine step."""

from pagedviz.probe import Answer
from pagedviz.ui.elements.timetables import name_of, show_timetables


def show(answer: Answer) -> None:
    """Show the run on the stage so far, then its requests served to the end in each other way."""
    others = [(name_of(table), table) for table in answer["others"]]
    show_timetables(answer, [("On the stage, so far", answer["stage"]), *others])
