"""A lesson on the screen: the text of its pages at the left, with questions, and the stage beside it."""

from functools import lru_cache, partial
from typing import Any

import streamlit as st

from pagedviz import lesson as lessons
from pagedviz.lesson import Lesson, PlacedPage, Question
from pagedviz.probe import Answer
from pagedviz.run_view import RunView
from pagedviz.runtime.client import ComputedRun
from pagedviz.ui import address, compute, findings, run_panel
from pagedviz.ui.elements.markdown import plain
from pagedviz.ui.links import Link, links

MAX_SEED = 9_999
PLACE = "lesson"  # the name under which `compute` follows its run


@lru_cache(maxsize=256)
def load(name: str, seed: int | None = None) -> Lesson:
    return lessons.load(name, seed)


def every() -> list[Lesson]:
    """All lessons in order, each with its own seed."""
    return [load(name) for name in lessons.names()]


def show(name: str) -> None:
    seed = address.whole_number("seed", 0, MAX_SEED)
    if seed is None and "seed" in st.query_params:
        given = plain(st.query_params["seed"][:60])
        st.info(f"There is no seed “{given}”; it is a whole number from 0 to {MAX_SEED:,}. This is the lesson's own.")
    lesson = load(name, seed)
    key = f"{name}-{lesson.scenario.seed}"
    start = address.start_step(key, lesson.pages[0].step, _last_step(lesson))
    run_panel.live(key, partial(_body, lesson, key, start))


def _last_step(lesson: Lesson) -> int:
    return max(placed.graded_at for placed in lesson.pages)


def _body(lesson: Lesson, key: str, start: int) -> ComputedRun:
    view, run = compute.follow(PLACE, lesson.scenario)
    step = min(run_panel.step_of(key, start), len(view.steps))
    left, right = st.columns([1, 3.6], gap="medium")
    with left:
        _show_text(lesson, key, step)
    with right:
        run_panel.show_stage(PLACE, key, view, run, start, **_questions_ahead(lesson, key, step))
        _show_below(lesson, key, view, run, step)
    return run


def _show_below(lesson: Lesson, key: str, view: RunView, run: ComputedRun, step: int) -> None:
    placed = lesson.page_at(step)
    if placed.page.shows is not None:
        at = step if placed.page.shows.follows else placed.step
        findings.show(placed.page.shows, compute.ask(PLACE, at, placed.page.shows))
    charts, export = st.columns([6, 1])
    with charts:
        run_panel.show_charts(key, view, run, step)
    with export:
        run_panel.show_downloads(key, view, run, lesson.name)


def _show_text(lesson: Lesson, key: str, step: int) -> None:
    placed = lesson.page_at(step)
    number = lesson.pages.index(placed) + 1
    st.caption(f"{lesson.title} · page {number} of {len(lesson.pages)}")
    # Each part has a container, so that no part of the page before stands here twice for a moment.
    with st.container():
        if number > 1:
            _outcome(lesson.pages[number - 2], key)
    st.subheader(placed.page.title, anchor=False)
    st.markdown(placed.page.text)
    question = placed.page.question
    with st.container():
        if question is not None and step < placed.graded_at:
            _ask(question, placed, key)
    with st.container():
        if step < placed.graded_at and (question is None or (key, placed.step) in _answers()):
            st.button(
                "Continue",
                on_click=partial(run_panel.go, key, placed.graded_at),
                key=f"{key}-on-{placed.step}",
                type="primary",
            )
    if number == len(lesson.pages):
        st.caption(f"The claim of this lesson: {lesson.claim}")
        _neighbours(lesson, key)
        seed = (lesson.scenario.seed * 31 + 17) % (MAX_SEED + 1)
        again = [Link("Again with another pool", f"lesson={lesson.name}&seed={seed}")]
        links(again, key=f"{key}-again", look="row", label="Again")


def _neighbours(lesson: Lesson, key: str) -> None:
    names = lessons.names()
    following = names[names.index(lesson.name) + 1 :][:1]
    links([Link(f"Next: {load(name).title}", f"lesson={name}") for name in following], key=f"{key}-next", look="row")


def _ask(question: Question, placed: PlacedPage, key: str) -> None:
    place = (key, placed.step)
    if place in _answers():
        _outcome(placed, key)
        return
    _found(placed)  # asked already now, so that the answer is there when the learner has predicted
    entered = f"{key}-entered-{placed.step}"

    def answer(skip: bool) -> None:
        given = SKIPPED if skip else st.session_state.get(entered)
        st.session_state[f"{key}-empty"] = given is None
        if given is not None:
            _answers()[place] = given
            run_panel.go(key, placed.graded_at)

    with st.form(f"{key}-question-{placed.step}"):
        st.markdown(f"**Before you step on**\n\n{question.text}")
        if question.choices:
            st.radio("Your prediction", question.choices, index=None, key=entered)
        else:
            st.number_input(f"Your prediction ({question.unit})", 0, 100_000, None, step=1, key=entered)
        if st.session_state.get(f"{key}-empty"):
            st.caption("Enter a prediction first, or skip.")
        check, skip = st.columns(2)
        check.form_submit_button("Check", on_click=answer, args=(False,), type="primary", width="stretch")
        skip.form_submit_button("Skip", on_click=answer, args=(True,), width="stretch")


SKIPPED = object()


def _answers() -> dict[tuple[str, int], Any]:
    """The predictions of this session, by run and step; SKIPPED where the learner skipped one."""
    answers: dict[tuple[str, int], Any] = st.session_state.setdefault("answers", {})
    return answers


def _outcome(placed: PlacedPage, key: str) -> None:
    """Show whether the prediction of a page was right, and why, with the actual numbers."""
    given = _answers().get((key, placed.step))
    if given is None or placed.page.question is None:
        return
    found = _found(placed)
    if found is None:
        st.info("The kernel is being asked …", icon=":material/hourglass_empty:")
        return
    if "refused" in found:
        st.warning(f"This cannot be graded. {found['refused']}", icon=":material/warning:")
        return
    answer, explanation = placed.graded(found)
    if given is SKIPPED:
        st.info(f"**The answer: {answer}.** {explanation}", icon=":material/skip_next:")
    elif given == answer:
        st.success(f"**Right: {answer}.** {explanation}", icon=":material/check:")
    else:
        st.warning(f"**You said “{given}”; the answer is “{answer}”.** {explanation}", icon=":material/close:")


def _found(placed: PlacedPage) -> Answer | None:
    """The answer to the probe of a page's question, {} if it has no probe; None while the kernel is being asked."""
    question = placed.page.question
    if question is None or question.probe is None:
        return {}
    return compute.ask(PLACE, placed.graded_at, question.probe)


def _questions_ahead(lesson: Lesson, key: str, step: int) -> dict[str, Any]:
    """Where the stage pauses: before each open question. Behind the next one the timeline is veiled."""
    still_open = [placed for placed in lesson.pages if placed.page.question and (key, placed.step) not in _answers()]
    ahead = [placed.step for placed in still_open if placed.graded_at > step]
    pauses = [{"step": placed.step, "text": "A question comes first."} for placed in still_open]
    return {"pauses": pauses, "veil": ahead[0] if ahead else None}
