"""Lens: what each split of a sequence computed, and how the parts are joined."""

from collections.abc import Sequence

import streamlit as st

from pagedviz.probe import NOT_FINITE, Answer
from pagedviz.ui.elements.attention import newest_token, show_error
from pagedviz.ui.elements.text_table import text_table


def show(answer: Answer) -> None:
    """Show a row for each split, then the joined output and the dense one."""
    # The stage shows which turn is not finite. Shares of the splits cannot be computed from it.
    if answer["max_error"] is None:
        st.caption(NOT_FINITE)
        return
    splits = [split for split in answer["splits"] if split["turns"]]
    most = max(split["lse"] for split in splits)
    shares = [2.0 ** (split["lse"] - most) for split in splits]
    st.caption(
        f"{newest_token(answer)}, {answer['num_splits']} programs. "
        "lse = m + log2(l); a part weighs 2^(lse − largest lse)."
    )
    rows = [
        (
            split["split"],
            " ".join(str(turn["block"]) for turn in split["turns"]),
            f"{split['turns'][-1]['m']:.4f}",
            f"{split['turns'][-1]['l']:.4f}",
            f"{split['lse']:.4f}",
            f"{share / sum(shares):.4f}",
            _numbers(split["out"]),
        )
        for split, share in zip(splits, shares, strict=True)
    ]
    rows.append(("joined", "", "", "", "", "1", _numbers(answer["out"])))
    rows.append(("dense", "", "", "", "", "", _numbers(answer["dense"]["out"])))
    text_table("The splits", ("program", "blocks", "m", "l", "lse", "share", "output, first numbers"), rows)
    show_error(answer["max_error"], answer["ok"])


def _numbers(out: Sequence[float]) -> str:
    return ", ".join(f"{number:.4f}" for number in out[:4])
