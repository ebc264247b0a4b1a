"""A lens over `paged_decode`: the same kernel, one block a turn, which also writes down what each turn held.

In production the kernel's `lens` argument is None and compiles to nothing; here it is the buffers that `report_turn.py`
fills. What a lens shows is what the kernel loaded and added up, not a computation beside it.
"""

from torch import Tensor

from kernels.decode.combine_splits import combine_splits
from kernels.decode.launch_decode import launch_decode, out_dtype
from kernels.decode.plan import Plan
from kernels.reference.lens import Lens, check, unwritten


def paged_decode_lens(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    scale: float | None = None,
    *,
    window: int | None = None,
    softcap: float | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    num_splits: int = 1,
) -> Lens:
    """Attend as `paged_decode` does and return what every turn of every program held, one block a turn.

    The arguments are those of `paged_decode`. `num_splits` programs, 1 to 128, share each sequence and KV head: of the
    n blocks that the window shows, split i takes ceil(n / num_splits) from the i-th such share on, perhaps none.

    Returns a `Lens`, whose docstring gives the shapes; max_turns is ceil(max_blocks / num_splits), lanes is block_size
    padded to a power of two, 16 at least. Raises ValueError as `paged_decode` does, and on other numbers of splits.

    Example: block_table=[7, 2], seq_len=6, block_size=4, num_splits=1 -> block [7, 2], position [0, 1, 2, 3, -1, ...]
    and [4, 5, -1, ...].
    """
    check(q, k_cache, v_cache, block_tables, seq_lens, window, softcap, k_scale, v_scale, num_splits)
    lens = unwritten(q, k_cache, block_tables, num_splits, out_dtype(q))
    if len(q) == 0:
        return lens
    plan = Plan(tile_tokens=k_cache.shape[1], num_splits=num_splits, num_warps=4, num_stages=1)
    launch_decode(
        *(lens.partial, lens.lse, q, k_cache, v_cache, block_tables, seq_lens),
        *(scale, window, softcap, k_scale, v_scale, plan),
        mask_all=True,
        lens=lens,
    )
    combine_splits(lens.out, lens.partial, lens.lse)
    return lens._replace(out=lens.out.to(q.dtype))
