"""The kernel that keeps a stream busy until the CPU lets it go."""

import triton
import triton.language as tl
from triton.language.extra.cuda import globaltimer


@triton.jit
def hold_kernel(
    flags,  # [2] int32 in pinned host memory: 1 lets go; 1 says that nobody did in time
    longest,  # nanoseconds
):
    ends = globaltimer() + longest
    while (tl.load(flags, volatile=True) == 0) & (globaltimer() < ends):
        pass
    tl.store(flags + 1, 1, mask=tl.load(flags, volatile=True) == 0)
