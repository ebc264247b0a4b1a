"""Which backend this machine has, and the lock that interpreted launches take in turn."""

import functools
import threading
from contextlib import AbstractContextManager

import torch

try:
    import triton
    from triton.runtime.errors import OutOfResources

    HAS_TRITON = True
except ImportError:
    HAS_TRITON = False

HAS_NVIDIA_GPU = torch.cuda.is_available() and torch.version.cuda is not None
INTERPRETED: bool = HAS_TRITON and triton.knobs.runtime.interpret
COMPILED: bool = HAS_TRITON and not INTERPRETED and HAS_NVIDIA_GPU
USES_TRITON: bool = INTERPRETED or COMPILED

# The interpreter patches `triton.language` while it runs a kernel: two threads would undo each other's patches.
INTERPRETER_LOCK = threading.RLock()


def backend_name() -> str:
    """Say in words what computes a step on this machine: the line that the screen shows.

    Returns "Triton, compiled, <GPU name>", "Triton interpreter, CPU" or "PyTorch blockwise, no Triton on this
    platform".
    """
    if COMPILED:
        return f"Triton, compiled, {torch.cuda.get_device_name()}"
    if INTERPRETED:
        return "Triton interpreter, CPU"
    return "PyTorch blockwise, no Triton on this platform"


def device() -> torch.device:
    """Say where tensors for the kernels live: the GPU when the kernels are compiled, else the CPU."""
    return torch.device("cuda") if COMPILED else torch.device("cpu")


def launching(tensor: torch.Tensor) -> AbstractContextManager[object]:
    """Hold what a launch on `tensor` needs: the interpreter's lock, or the tensor's GPU as the current one."""
    return INTERPRETER_LOCK if INTERPRETED else torch.cuda.device(tensor.device)


def too_much(error: Exception) -> tuple[str, int, int] | None:
    """Say what a GPU has too little of for a kernel, what the kernel needs and what there is; None for other errors.

    Triton compares them before it loads the kernel, so nothing was launched and the GPU is as it was.

    Example: ("shared memory", 155648, 101376), in bytes.
    """
    if not HAS_TRITON or not isinstance(error, OutOfResources):
        return None
    return error.name, error.required, error.limit


def can_overlap(tensor: torch.Tensor) -> bool:
    """Say whether a kernel can start while the one before it ends: compiled, from Hopper (sm_90) on."""
    return COMPILED and _capability(tensor.device) >= (9, 0)


@functools.cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)
