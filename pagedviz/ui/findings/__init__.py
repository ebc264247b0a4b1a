"""What a probe found, shown below the stage: one file for each kind of probe, in rooms named as in `runtime/probes`."""

from collections.abc import Callable

import streamlit as st

from pagedviz import probe
from pagedviz.probe import Answer, Probe
from pagedviz.ui.elements.markdown import plain
from pagedviz.ui.findings.attention import flash_and_paged, launch, lazy_rescale, lens, unchained_hit
from pagedviz.ui.findings.measured import bandwidth, preemption_cost
from pagedviz.ui.findings.what_if import block_sizes, chunks, orders, radix, swap_or_recompute, timetable


def show(question: Probe, answer: Answer | None) -> None:
    """Show an answer, or that there is none yet, or why there is none."""
    if answer is None:
        st.caption("The compute process is being asked …")
    elif "refused" in answer:
        st.caption(plain(str(answer["refused"])))
    else:
        SHOWN[type(question)](answer)


SHOWN: dict[type[Probe], Callable[[Answer], None]] = {
    probe.Bandwidth: bandwidth.show,
    probe.BlockSizes: block_sizes.show,
    probe.Chunks: chunks.show,
    probe.FlashAndPaged: flash_and_paged.show,
    probe.Launch: launch.show,
    probe.LazyRescale: lazy_rescale.show,
    probe.Lens: lens.show,
    probe.Orders: orders.show,
    probe.Radix: radix.show,
    probe.SwapOrRecompute: swap_or_recompute.show,
    probe.Timetable: timetable.show,
    probe.UnchainedHit: unchained_hit.show,
    probe.PreemptionCost: preemption_cost.show,
}
