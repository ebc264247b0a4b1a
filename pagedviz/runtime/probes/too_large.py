"""Which errors mean that this machine is too small for an answer, and not that something is broken."""

import torch

from kernels import launch
from pagedviz.scenario.settings import CacheConfig

UNITS = {"shared memory": "bytes of shared memory", "tensor memory": "columns of tensor memory"}


def sentence(error: Exception, cache: CacheConfig) -> str | None:
    """A sentence about what was too large for this machine's GPU, or None for any other error.

    Both errors are raised before a launch: Triton compares what a kernel needs with what the GPU has before it loads
    the kernel, and torch allocates memory before a kernel writes there. So the GPU is unchanged, and the process may go
    on. After any other error the GPU may be unusable, or the error is a fault of this program.
    """
    lacking = launch.too_much(error)
    if lacking is not None:
        name, needed, limit = lacking
        return (
            f"A kernel that this takes needs {needed:,} {UNITS.get(name, name)}, and this GPU has {limit:,}; "
            f"smaller blocks (here {cache.block_size} tokens) or heads (here {cache.head_dim} numbers) need less."
        )
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return "This machine's GPU has too little memory left for what this takes."
    return None
