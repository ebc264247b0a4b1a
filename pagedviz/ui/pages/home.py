"""The first screen: a stage, and links to everything else."""

from functools import partial

import streamlit as st

from pagedviz.lesson import Lesson
from pagedviz.runtime.client import ComputedRun
from pagedviz.ui import compute, run_panel
from pagedviz.ui.links import Link, links
from pagedviz.ui.pages import lesson as lesson_page

ON_STAGE = "06_copy_on_write"  # the run on the first stage: a fork, a copy, two writers


def show() -> None:
    lesson = lesson_page.load(ON_STAGE)
    run_panel.live("home", partial(_body, lesson))


def _body(lesson: Lesson) -> ComputedRun:
    view, run = compute.follow("home", lesson.scenario)
    left, right = st.columns([1, 3.6], gap="medium")
    with left:
        st.subheader("Watch a token find its block", anchor=False)
        st.markdown(
            "A serving engine cuts the memory for keys and values into **blocks** and keeps a **block table** for each "
            "sequence. Press play, or the right arrow key.\n\n"
            "Nothing here is drawn that was not computed: real K and V in real blocks, and a Triton kernel that walks "
            "the table you see, checked against dense attention after every step."
        )
        links(
            [
                *(Link(taught.title, f"lesson={taught.name}", note=taught.claim) for taught in lesson_page.every()),
                Link("Your sequences", "page=sequences", note="Type text, append, fork, spill, and see where it goes."),
                Link("Speed", "page=speed", note="What the kernels reach on a GPU, beside others."),
            ],
            key="home-links",
            look="list",
            label="Lessons",
        )
    with right:
        run_panel.show_stage("home", "home", view, run, lesson.pages[0].step, in_address=False)
    return run
