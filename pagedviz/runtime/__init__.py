"""Tensors: the cache, the toy model, the runner that checks each step, and the process that owns them.

`worker` is the compute process and `client` the app's side of it. The rooms, each of which imports only those above it:

    cache, computing    K and V in blocks; the toy model, the tensors of a launch, captured decode calls
    checking            the plain log, and the judge that compares the cache and the kernels with it
    running             the runner, and the recording that brings back earlier states
    measuring           times on this machine's GPU (imports `cache` only)
    probes              answers to questions about a state of a run

Only `worker` and the rooms load torch. The app's process imports `client` alone.
"""
