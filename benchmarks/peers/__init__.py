"""Attention of other projects: one file a peer, each with NAME, TIMED and the same three functions.

`version()` returns the installed version, or raises Absent. `decode` and `prefill` take the arguments of this project's
kernels, but with q and tables of several pools at once. They prepare what the peer needs, which is not timed, and
return one launch a pool. They raise Absent, with the reason in one line, for what the peer cannot do. TIMED is "graph"
where a CUDA graph can hold the peer, else "host clock".
"""

from types import ModuleType

# Before a peer imports triton: `kernels` chooses triton's backend.
import kernels  # noqa: F401
from benchmarks.peers import cudnn_dense, flashinfer_paged, flex_paged, jax_paged

PEERS: tuple[ModuleType, ...] = (flashinfer_paged, cudnn_dense, flex_paged, jax_paged)
