"""LazyRescale: how often the online softmax scaled down its sums, and how often it skipped that."""

import streamlit as st

from pagedviz.probe import Answer
from pagedviz.ui.elements.attention import newest_token, show_error
from pagedviz.ui.elements.text_table import text_table


def show(answer: Answer) -> None:
    """Show m and l of the plain loop turn by turn; beside them those of the lazy loop, where a threshold is given."""
    lazy = answer["threshold"] > 0
    st.caption(
        f"{newest_token(answer)}, scores times {answer['sharpness']}. m and l after each turn, m in powers of 2."
    )
    rows: list[tuple[object, ...]] = []
    for turn, (block, m, total) in enumerate(zip(answer["blocks"], answer["plain_m"], answer["plain_l"], strict=True)):
        before = answer["plain_m"][turn - 1] if turn else None
        row: tuple[object, ...] = (turn + 1, block, f"{m:.2f}", f"{total:.4g}", _grown(before, m))
        if lazy:
            used, used_before = answer["m"][turn], answer["m"][turn - 1] if turn else None
            done = used_before is not None and used > used_before
            kept = before is not None and m > before and not done
            outcome = "**rescaled**" if done else "skipped" if kept else ""
            row += (f"{used:.2f}", f"{answer['l'][turn]:.4g}", outcome)
        rows.append(row)
    head = ["turn", "block", "m", "l", "m grew by"]
    if lazy:
        head += ["m in use", "its l", f"threshold {answer['threshold']}"]
    text_table("The loop by turn", head, rows)
    if lazy:
        st.markdown(f"The kernel counted **{answer['done']} done, {answer['skipped']} skipped**.")
    show_error(answer["max_error"], answer["ok"])


def _grown(before: float | None, now: float) -> str:
    return "" if before is None or now == before else f"{now - before:.2f}"
