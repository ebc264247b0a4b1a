"""paged_decode as CUDA graphs: a call with the same shapes as before is replayed instead of launched anew.

A graph holds addresses and shapes, no numbers. Queries, tables and lengths are copied to the addresses that it reads.
The kernel divides its work by shapes alone, so a graph that was captured at one length is right at any other.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

import kernels

MOST_GRAPHS = 16  # kept by one run; the least recently used one is dropped first
EAGER_CALLS = 10  # of a kind before it is captured: on an H200 a capture takes as long as 7 to 13 replays save


class DecodeGraphs:
    """Call it like `kernels.paged_decode`. The first calls of a kind launch the kernel, later ones replay its graph.

    A kind is everything but the numbers in q, block_tables and seq_lens: their shapes and dtypes, the addresses of the
    caches and scales, and the options. On a CPU every call launches the kernel.
    """

    def __init__(self) -> None:
        # By kind: its graph, or how often it has been called without one.
        self.seen: OrderedDict[Hashable, DecodeGraph | int] = OrderedDict()

    def __call__(
        self, q: Tensor, k_cache: Tensor, v_cache: Tensor, block_tables: Tensor, seq_lens: Tensor, **options: Any
    ) -> Tensor:
        if not q.is_cuda or MOST_GRAPHS == 0:
            return kernels.paged_decode(q, k_cache, v_cache, block_tables, seq_lens, **options)
        inputs = [(x.shape, x.dtype) for x in (q, block_tables, seq_lens)]
        kind = (*inputs, *map(_place, (k_cache, v_cache, *options.values())), *options)
        graph = self.seen.pop(kind, 0)
        if isinstance(graph, int) and graph >= EAGER_CALLS:
            graph = DecodeGraph(self._pool(), q, k_cache, v_cache, block_tables, seq_lens, **options)
        self.seen[kind] = graph + 1 if isinstance(graph, int) else graph
        if len(self.seen) > MOST_GRAPHS:
            self.seen.popitem(last=False)
        if isinstance(graph, int):
            return kernels.paged_decode(q, k_cache, v_cache, block_tables, seq_lens, **options)
        return graph.replay(q, block_tables, seq_lens)

    def _pool(self) -> Any:
        """One memory pool for all graphs: results are copied out before the next replay, and two graphs never run at
        once.

        The pool is freed with its last graph, so it is taken from a graph that is kept.
        """
        alive = (graph.graph.pool() for graph in self.seen.values() if isinstance(graph, DecodeGraph))
        return next(alive, None) or torch.cuda.graph_pool_handle()


class DecodeGraph:
    """One captured call. It refers to the caches by address only: a run that closes frees them."""

    def __init__(
        self,
        pool: Any,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        block_tables: Tensor,
        seq_lens: Tensor,
        **options: Any,
    ) -> None:
        # The graph reads these: contiguous copies, at first of this call's numbers.
        self.inputs = [x.clone(memory_format=torch.contiguous_format) for x in (q, block_tables, seq_lens)]
        q, block_tables, seq_lens = self.inputs

        def call() -> Tensor:
            return kernels.paged_decode(q, k_cache, v_cache, block_tables, seq_lens, **options)

        # Once outside the graph: here Triton compiles and loads what these addresses still need.
        call()
        self.graph = torch.cuda.CUDAGraph()
        # Captured by hand: `torch.cuda.graph` first waits for the whole GPU and empties the allocator's cache.
        stream = torch.cuda.Stream(q.device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            # During the capture only this thread is forbidden what a capture does not allow.
            self.graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                self.out = call()
            finally:
                self.graph.capture_end()

    def replay(self, *inputs: Tensor) -> Tensor:
        """Compute with these q, block_tables and seq_lens; the result is the caller's own."""
        for static, given in zip(self.inputs, inputs, strict=True):
            static.copy_(given)
        self.graph.replay()
        return self.out.clone()


def _place(x: Any) -> Hashable:
    """What a graph keeps of an argument that is not copied: a tensor's address and layout, or the value itself."""
    return (x.data_ptr(), x.shape, x.stride(), x.dtype) if isinstance(x, Tensor) else x
