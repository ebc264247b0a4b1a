"""The kernels of PagedAttention, each beside a plain torch twin with the same signature.

Read `reference.py` first: it says what each kernel means. Then, in the order in which a token meets them:
`store_kv.py`, `paged_decode.py` (whose kernel is `decode_kernel.py`), `paged_prefill.py` (`prefill_kernel.py`, and
`prefill_descriptor_kernel.py` where tiles fit blocks), `copy_blocks.py`, `gather_blocks.py`; and, apart from them,
`lens.py`, which lets the decode kernel report each of its turns, and `lazy_rescale.py`, which tries one trick.
`block_rows.py` is how whole blocks move, `quantize.py` how 8-bit numbers are made. The package knows torch and triton,
and nothing of pagedviz.
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
    from kernels.copy_blocks import copy_blocks
    from kernels.gather_blocks import gather_blocks, scatter_blocks
    from kernels.lazy_rescale import lazy_rescale
    from kernels.lens import paged_decode_lens
    from kernels.paged_decode import paged_decode
    from kernels.paged_prefill import paged_prefill
    from kernels.store_kv import store_kv
else:
    from kernels.reference import copy_blocks, gather_blocks, paged_decode, scatter_blocks, store_kv
    from kernels.reference_lazy_rescale import lazy_rescale
    from kernels.reference_lens import paged_decode_lens
    from kernels.reference_prefill import paged_prefill

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
