"""The kernel that keeps a stream busy until the CPU releases it."""

import triton
import triton.language as tl
from triton.language.extra.cuda import globaltimer


@triton.jit
def hold_kernel(
    flags,  # [2] int32 in pinned host memory: a 1 in the first releases; a 1 in the second says that time ran out
    longest,  # nanoseconds
):
    ends = globaltimer() + longest
    while (tl.load(flags, volatile=True) == 0) & (globaltimer() < ends):
        pass
    tl.store(flags + 1, 1, mask=tl.load(flags, volatile=True) == 0)
