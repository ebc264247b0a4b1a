"""The same query with every rescale and with FlashAttention-4's lazy rescales, counted by the kernel itself."""

from typing import Any

import kernels
from pagedviz import probe
from pagedviz.probe import whole_number
from pagedviz.runtime.checking.tolerance import TOLERANCE
from pagedviz.runtime.probes.attention.newest import must_see_all, newest
from pagedviz.runtime.running.recording import Moment


def answer(question: probe.LazyRescale, moment: Moment) -> dict[str, Any]:
    """m and l after each turn of the lazy and of the plain loop, rescales done and skipped, the error of the output."""
    at = newest(moment, question.seq_id, question.layer, question.head)
    must_see_all(at)
    whole_number("sharpness", question.sharpness, 1, 64)
    whole_number("threshold", question.threshold, 0, 100)
    scale = question.sharpness * at.q.shape[1] ** -0.5
    q, k_cache, v_cache = at.q[at.head], at.k_cache[:, :, at.kv_head], at.v_cache[:, :, at.kv_head]
    given = (q, k_cache, v_cache, at.block_table, at.seq_len, scale)
    plain = kernels.lazy_rescale(*given, threshold=0.0)
    found = kernels.lazy_rescale(*given, threshold=float(question.threshold)) if question.threshold else plain
    dense = kernels.dense_attention(at.q[None], at.k, at.v, scale)[0, at.head]
    error = float((found.out - dense).abs().max())
    done, skipped = found.rescales.tolist()
    return {
        "seq_id": question.seq_id,
        "layer": question.layer,
        "head": question.head,
        "sharpness": question.sharpness,
        "threshold": question.threshold,
        "blocks": at.block_table.tolist(),
        "plain_m": plain.m.tolist(),
        "plain_l": plain.l.tolist(),
        "m": found.m.tolist(),
        "l": found.l.tolist(),
        "done": done,
        "skipped": skipped,
        "max_error": error,
        "ok": error <= TOLERANCE,
    }
