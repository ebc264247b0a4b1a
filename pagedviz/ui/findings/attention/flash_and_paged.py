"""FlashAndPaged: one kernel over the blocks of a sequence, and over the same K and V in tiles side by side."""

import streamlit as st

from pagedviz.probe import Answer
from pagedviz.ui.elements.attention import newest_token, show_error
from pagedviz.ui.elements.text_table import text_table


def show(answer: Answer) -> None:
    """Show m and l of both loops turn by turn, to the last digit."""
    blocks, tiles = answer["paged"], answer["flash"]
    st.caption(
        f"{newest_token(answer)}, over {answer['seq_len']} tokens: one kernel through the table, and over the same "
        f"K and V side by side in tiles of {answer['tile']}. Nine digits tell every float32 from its neighbours."
    )
    rows = []
    for turn in range(max(len(blocks), len(tiles))):
        cells: list[str] = []
        for side in (blocks, tiles):
            at = side[turn] if turn < len(side) else None
            cells += ["", "", ""] if at is None else [str(at["place"]), f"{at['m']:.9g}", f"{at['l']:.9g}"]
        rows.append((turn + 1, *cells))
    text_table("Both loops by turn", ("turn", "block", "m", "l", "tile", "m", "l"), rows)
    differ, dim = answer["numbers_that_differ"], answer["head_dim"]
    st.markdown(
        f"**The outputs are equal bit for bit**, all {dim} numbers of them."
        if not differ
        else f"**{differ} of the {dim} output numbers differ**, by {answer['difference']:.1e} at most: they were "
        "summed in other groups, and so rounded elsewhere."
    )
    show_error(answer["max_error"], answer["ok"])
