"""Attention of many new tokens at once through the block tables: its signature, until the kernel arrives."""

from torch import Tensor


def paged_prefill(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    query_start_loc: Tensor,
    scale: float | None = None,
    *,
    window: int | None = None,
    softcap: float | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
) -> Tensor:
    """Attend from many new tokens per sequence, each seeing itself and what came before it. Not written yet.

    Raises NotImplementedError.
    """
    raise NotImplementedError(
        "paged_prefill: this kernel comes with a later piece of work; until then call paged_decode token by token"
    )
