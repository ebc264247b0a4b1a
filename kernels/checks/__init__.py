"""What the calls refuse before anything is launched: a ValueError that names the call, the value and what is right.

These are checks of arguments. `pagedviz/runtime/checking/` checks what the kernels computed.
"""
