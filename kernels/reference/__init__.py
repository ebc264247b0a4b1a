"""What each kernel means, in plain torch: a twin of the same name and signature for every launcher of `kernels`.

The twins judge the kernels, and compute where Triton is not installed. Read `decode.py` first, then `moves.py`,
`prefill.py`, `eight_bits.py`. `dense.py` judges the twins in turn: it knows nothing of blocks.
"""

from kernels.reference.decode import paged_decode
from kernels.reference.dense import dense_attention
from kernels.reference.lazy_rescale import lazy_rescale
from kernels.reference.lens import paged_decode_lens
from kernels.reference.moves import copy_blocks, gather_blocks, scatter_blocks, store_kv
from kernels.reference.prefill import paged_prefill

__all__ = [
    "copy_blocks",
    "dense_attention",
    "gather_blocks",
    "lazy_rescale",
    "paged_decode",
    "paged_decode_lens",
    "paged_prefill",
    "scatter_blocks",
    "store_kv",
]
