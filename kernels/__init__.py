"""The kernels of PagedAttention, each beside a plain torch twin with the same signature.

The first kernel to read is `decode/minimal.py`: some 45 lines, and all that PagedAttention is about. Then
`reference/decode.py`, which says in plain torch what the kernels that attend compute. Then, in the order in which a
token meets them: `moves/store_kv.py`, `decode/paged_decode.py` (its kernel is `decode/kernel.py`),
`prefill/paged_prefill.py`, `moves/copy_blocks.py` and `moves/gather_blocks.py`. Each folder's `__init__.py` says what
lies in it. `checks/` holds what the calls refuse, `launch.py` which backend this machine has. The package knows torch
and triton, and nothing of pagedviz.
"""

import os
import sys

import torch

# Triton reads this when it is imported and when `@triton.jit` decorates, so it is set before either happens.
if not (torch.cuda.is_available() and torch.version.cuda) and "TRITON_INTERPRET" not in os.environ:
    if sys.modules.get("triton") is not None:
        raise ImportError(
            "kernels: triton was imported before kernels on a machine without an NVIDIA GPU, too late to choose its "
            "interpreter; import kernels first, or start Python with TRITON_INTERPRET=1"
        )
    os.environ["TRITON_INTERPRET"] = "1"

from kernels.launch import USES_TRITON, backend_name, device
from kernels.reference import dense_attention

if USES_TRITON:
    from kernels.decode.lazy_rescale import lazy_rescale
    from kernels.decode.lens import paged_decode_lens
    from kernels.decode.paged_decode import paged_decode
    from kernels.moves.copy_blocks import copy_blocks
    from kernels.moves.gather_blocks import gather_blocks, scatter_blocks
    from kernels.moves.store_kv import store_kv
    from kernels.prefill.paged_prefill import paged_prefill
else:
    from kernels.reference import (
        copy_blocks,
        gather_blocks,
        lazy_rescale,
        paged_decode,
        paged_decode_lens,
        paged_prefill,
        scatter_blocks,
        store_kv,
    )

__all__ = [
    "backend_name",
    "copy_blocks",
    "dense_attention",
    "device",
    "gather_blocks",
    "lazy_rescale",
    "paged_decode",
    "paged_decode_lens",
    "paged_prefill",
    "scatter_blocks",
    "store_kv",
]
