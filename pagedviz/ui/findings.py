"""What a probe found, below the stage: one function for each kind of probe that a page may show."""

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from pagedviz import probe
from pagedviz.engine.policies.windows import first_seen
from pagedviz.figures.counts_by_block_size import counts_by_block_size
from pagedviz.probe import Answer, Probe
from pagedviz.ui import bandwidth_found, radix_found, swap_found, timetable_found
from pagedviz.ui.address import plain
from pagedviz.ui.text_table import text_table


def show(asked: Probe, answer: Answer | None) -> None:
    """Show an answer, or that there is none yet, or why there is none."""
    if answer is None:
        st.caption("The compute process is being asked …")
    elif "refused" in answer:
        st.caption(plain(str(answer["refused"])))
    else:
        SHOWN[type(asked)](answer)


def _launch(answer: Answer) -> None:
    """The tensors that one launch is given: cut by sequence, then as they would be printed."""
    st.caption(
        f"What this step's launch of `{answer['kernel']}` was given, cut by sequence. `Numbers like this` are used, "
        "others are padding" + (" or out of the window." if any(g["window"] for g in answer["groups"]) else ".")
    )
    starts, several = answer["query_start_loc"], len(answer["groups"]) > 1
    rows: list[tuple[object, ...]] = []
    for i, seq_id in enumerate(answer["seq_ids"]):
        first, stop = starts[i], starts[i + 1]
        asking = str(first) if stop == first + 1 else f"{first} … {stop - 1}"
        for number, group in enumerate(answer["groups"]):
            used = _followed(answer, i, group["window"])
            entries = [f"`{b}`" if j in used else str(b) for j, b in enumerate(group["block_tables"][i])]
            slots = [f"`{slot}`" if slot >= 0 else str(slot) for slot in group["slot_mapping"][first:stop]]
            of_group = (_of_group(number, group["window"]),) if several else ()
            rows.append((f"**{seq_id}**", *of_group, " ".join(entries), answer["seq_lens"][i], asking, " ".join(slots)))
    head = ("sequence", *(["group"] * several), "its row of block_tables", "seq_lens", "its rows of q", "slot_mapping")
    text_table("The launch by sequence", head, rows)
    lines = []
    for number, group in enumerate(answer["groups"]):
        lines += [f"# group {_of_group(number, group['window'])}"] if several else []
        lines.append(_tensor("block_tables", "int32", group["block_tables"]))
        lines.append(_tensor("slot_mapping", "int64", group["slot_mapping"]))
    lines += ["# every group"] if several else []
    lines += [_tensor(name, "int32", answer[name]) for name in ("seq_lens", "query_start_loc")]
    st.code("\n".join(lines), language=None)


def _followed(answer: Answer, i: int, window: int | None) -> range:
    """The logical blocks of a sequence that its rows of q look at."""
    size, seq_len = max(1, answer["block_size"]), answer["seq_lens"][i]
    first_query = seq_len - answer["query_lens"][i]
    return range(first_seen(first_query, window) // size, -(-seq_len // size))


def _of_group(number: int, window: int | None) -> str:
    return f"{number}, full attention" if window is None else f"{number}, window {window}"


def _tensor(name: str, kind: str, numbers: list[Any]) -> str:
    shape = str(len(numbers)) + (f", {len((numbers or [[]])[0])}" if name == "block_tables" else "")
    return f"{name:16}{f'{kind} [{shape}]':14}{_printed(numbers)}"


def _printed(tensor: list[Any]) -> str:
    if not tensor or not isinstance(tensor[0], list):
        return str(tensor)
    width = max(len(str(entry)) for row in tensor for entry in row) if tensor[0] else 0
    rows = ["[" + ", ".join(f"{entry:>{width}}" for entry in row) + "]" for row in tensor]
    return "[" + (",\n" + " " * 31).join(rows) + "]"


def _lens(answer: Answer) -> None:
    """What each split of a sequence found, and how the parts are joined."""
    # The stage shows a turn that is not finite; these sentences and shares would have nothing to say.
    if answer["max_error"] is None:
        st.caption(probe.NOT_FINITE)
        return
    splits = [split for split in answer["splits"] if split["turns"]]
    most = max(split["lse"] for split in splits)
    shares = [2.0 ** (split["lse"] - most) for split in splits]
    st.caption(
        f"{_who(answer)}, {answer['num_splits']} programs. lse = m + log2(l); a part weighs 2^(lse − largest lse)."
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
    _verdict(answer)


def _flash_and_paged(answer: Answer) -> None:
    """m and l of the loop over blocks beside those of the loop over tiles, to the last digit."""
    blocks, tiles = answer["paged"], answer["flash"]
    st.caption(
        f"{_who(answer)}, over {answer['seq_len']} tokens: one kernel through the table, and over the same K and V "
        f"side by side in tiles of {answer['tile']}. Nine digits tell every float32 from its neighbours."
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
    _verdict(answer)


def _lazy_rescale(answer: Answer) -> None:
    """m and l by turn: of the plain loop, and beside it of the lazy one if it was asked for."""
    lazy = answer["threshold"] > 0
    st.caption(f"{_who(answer)}, scores times {answer['sharpness']}. m and l after each turn, m in powers of 2.")
    rows: list[tuple[object, ...]] = []
    for turn, (block, m, total) in enumerate(zip(answer["blocks"], answer["plain_m"], answer["plain_l"], strict=True)):
        before = answer["plain_m"][turn - 1] if turn else None
        row: tuple[object, ...] = (turn + 1, block, f"{m:.2f}", f"{total:.4g}", _grown(before, m))
        if lazy:
            used, used_before = answer["m"][turn], answer["m"][turn - 1] if turn else None
            done = used_before is not None and used > used_before
            kept = before is not None and m > before and not done
            said = "**rescaled**" if done else "skipped" if kept else ""
            row += (f"{used:.2f}", f"{answer['l'][turn]:.4g}", said)
        rows.append(row)
    head = ["turn", "block", "m", "l", "m grew by"]
    if lazy:
        head += ["m in use", "its l", f"threshold {answer['threshold']}"]
    text_table("The loop by turn", head, rows)
    if lazy:
        st.markdown(f"The kernel counted **{answer['done']} done, {answer['skipped']} skipped**.")
    _verdict(answer)


def _grown(before: float | None, now: float) -> str:
    return "" if before is None or now == before else f"{now - before:.2f}"


def _block_sizes(answer: Answer) -> None:
    """A run under several block sizes: the counts as a figure and as numbers."""
    rows = answer["rows"]
    one, other = (plain(seq_id) for seq_id in answer["pair"])
    st.plotly_chart(
        counts_by_block_size(rows),
        key="found-block-sizes",
        config={"displayModeBar": False},
        alt="Wasted slots, tokens of a common prefix in full blocks, table entries and copies by block size",
    )
    st.caption(
        f"Counted after “{plain(answer['after'])}”. "
        f"Hit: tokens of {other} that a full block of {one} holds too, from the first block on."
    )
    text_table(
        "Counts by block size",
        (
            "block_size",
            "blocks",
            "wasted slots",
            "tokens hit",
            "table entries",
            "blocks copied",
            "bytes copied",
            "largest error",
        ),
        [
            (
                row["block_size"],
                row["num_blocks"],
                row["wasted"],
                row["hit"],
                row["entries"],
                row["copies"],
                f"{row['bytes_copied']:,}",
                f"{row['max_error']:.1e}",
            )
            for row in rows
        ],
    )
    worst = max(row["max_error"] for row in rows)
    _verdict({"max_error": worst, "ok": worst <= answer["tolerance"]})


def _unchained_hit(answer: Answer) -> None:
    """How wrong a hit by a block's own tokens alone would be, layer by layer."""
    who, other = plain(answer["seq_id"]), plain(answer["other"])
    st.caption(
        f"{other}'s block {answer['block']} in the place of {who}'s own {answer['own_block']}, and attention over it "
        f"from position {answer['first_behind']} on. How far each is from what is right for {who}, at most:"
    )
    rows = [
        (f"layer {i}", *(f"{layer[name]:.2g}" for name in ("k_error", "v_error", "out_error")))
        for i, layer in enumerate(answer["layers"])
    ]
    text_table("A hit without the chain by layer", ("", "K of the block", "V of the block", "attention"), rows)
    found = f"attention is off by {answer['max_error']:.2g}; the tolerance is {answer['tolerance']:.0e}."
    if answer["ok"]:
        st.success(f"**Such a hit would be right:** {found}", icon=":material/check:")
    else:
        st.error(f"**Such a hit is wrong:** {found}", icon=":material/close:")


def _who(answer: Answer) -> str:
    return f"{plain(answer['seq_id'])}'s newest token, layer {answer['layer']}, query head {answer['head']}"


def _verdict(answer: Answer) -> None:
    word = "within the tolerance" if answer["ok"] else "**beyond the tolerance**"
    st.caption(f"Largest distance from dense attention in float64: {answer['max_error']:.1e}, {word}.")


def _numbers(out: Sequence[float]) -> str:
    return ", ".join(f"{number:.4f}" for number in out[:4])


SHOWN: dict[type[Probe], Callable[[Answer], None]] = {
    probe.Bandwidth: bandwidth_found.show,
    probe.BlockSizes: _block_sizes,
    probe.Chunks: timetable_found.show_chunks,
    probe.FlashAndPaged: _flash_and_paged,
    probe.Launch: _launch,
    probe.LazyRescale: _lazy_rescale,
    probe.Lens: _lens,
    probe.Orders: radix_found.show_orders,
    probe.Radix: radix_found.show_tree,
    probe.SwapOrRecompute: swap_found.show_counts,
    probe.Timetable: timetable_found.show,
    probe.UnchainedHit: _unchained_hit,
    probe.PreemptionCost: swap_found.show_times,
}
