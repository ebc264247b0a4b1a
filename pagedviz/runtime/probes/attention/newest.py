"""What these probes ask about: the newest token of a sequence, in one layer, and one query head."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pagedviz.probe import Refused, whole_number
from pagedviz.runtime.computing.launch_input import newest_sees_all
from pagedviz.runtime.running.recording import Moment


@dataclass(frozen=True)
class Newest:
    """A sequence's newest query and all that it reads, in one layer.

    q [num_heads, head_dim]; k_cache, v_cache [num_blocks, block_size, num_kv_heads, head_dim]; block_table int32
    [num_blocks of the sequence]; k, v [seq_len, num_kv_heads, head_dim] from the plain log, of which the query sees
    the newest `window`, or all; `kv_head` is the KV head that query head `head` reads.
    """

    head: int
    kv_head: int
    q: Tensor
    k_cache: Tensor
    v_cache: Tensor
    block_table: Tensor
    k: Tensor
    v: Tensor
    window: int | None = None

    @property
    def seq_len(self) -> int:
        return len(self.k)

    @property
    def block_size(self) -> int:
        return self.k_cache.shape[1]


def newest(moment: Moment, seq_id: str, layer: int, head: int) -> Newest:
    """Find the newest token of a sequence; raises Refused if the sequence, the layer or the head is not there."""
    state, cache = moment.snapshot, moment.scenario.cache
    if seq_id not in state.tokens:
        raise Refused(
            f"There is no sequence {seq_id} at this step; there is {', '.join(state.tokens) or 'none at all'}."
        )
    if not state.tokens[seq_id]:
        raise Refused(f"{seq_id} has no token yet at this step, so no kernel runs over it.")
    if not state.is_resident(seq_id):
        raise Refused(f"{seq_id} is not on the device at this step, and a kernel runs over resident sequences only.")
    if not newest_sees_all(state, seq_id):
        raise Refused(
            f"At this step {seq_id}'s tables do not name all blocks that its newest token sees, so its attention "
            "cannot be computed."
        )
    whole_number("layer", layer, 0, cache.num_layers - 1)
    whole_number("head", head, 0, cache.num_heads - 1)
    logged, seq_len = moment.log[seq_id], state.seq_len(seq_id)
    k, v = logged.stacked_kv(layer, seq_len)
    group = layer % len(state.windows)
    k_cache, v_cache = moment.kv.of_layer(layer)
    return Newest(
        head=head,
        kv_head=head // (cache.num_heads // cache.num_kv_heads),
        q=logged.q[layer][seq_len - 1],
        k_cache=k_cache,
        v_cache=v_cache,
        block_table=torch.tensor(state.tables(group)[seq_id], dtype=torch.int32, device=k.device),
        k=k,
        v=v,
        window=state.windows[group],
    )


def must_see_all(at: Newest) -> None:
    """Raise Refused where the layer has a window: for answers about the whole sequence."""
    if at.window is not None:
        raise Refused(f"This layer sees only the newest {at.window} tokens; this question needs one that sees all.")
