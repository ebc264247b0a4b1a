"""Streams that are held until they are let go: what must wait for one and what must not are seen, however busy the GPU.

One program spins on a number in pinned host memory, which the CPU writes: nothing has to get past the held stream on
the GPU to let it go. While a stream is held, whatever waits for the whole GPU would wait for ever: kernels compiled or
loaded for the first time, memory allocated for the first time. So each test is rehearsed before, with streams that are
let go at once, and a hold ends after `LONGEST` seconds all the same, which is a failure.
"""

import functools
import inspect
import threading
import time
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

LONGEST = 20  # seconds, after which a stream goes on although it was not released
SOON = 0.3  # seconds


class Holds:
    """Holds streams until `let_go`, at the latest until the end of its `with`. A rehearsal lets them go at once."""

    def __init__(self, rehearsal: bool) -> None:
        self.rehearsal = rehearsal
        self.flags: list[Tensor] = []
        self.threads: list[threading.Thread] = []

    def hold(self, stream: torch.cuda.Stream) -> None:
        """Let the stream do nothing more than what it was given before."""
        from tests.runtime.hold_kernel import hold_kernel

        flags = torch.zeros(2, dtype=torch.int32).pin_memory()
        flags[0] = int(self.rehearsal)
        with torch.cuda.stream(stream):
            torch.empty(1, device="cuda")
            _spare_pinned_memory()
            torch.cuda.synchronize()
            hold_kernel[(1,)](flags, LONGEST * 1_000_000_000, num_warps=1)
        self.flags.append(flags)

    def let_go(self) -> None:
        """Let the held streams go on, after a moment: what was launched and does not wait for them has run by then."""
        held = [flags for flags in self.flags if not flags[0]]
        if held:
            time.sleep(SOON)
        for flags in held:
            flags[0] = 1

    def let_go_soon(self) -> None:
        """The same from another thread, before a call that makes the CPU wait."""
        self.threads.append(threading.Thread(target=self.let_go))
        self.threads[-1].start()

    def __enter__(self) -> "Holds":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.let_go()
        for thread in self.threads:
            thread.join()
        if self.flags:
            torch.cuda.synchronize()
        if error is None:
            late = [flags for flags in self.flags if flags[1]]
            assert not late, f"something waited for a held stream before it was let go, so it went on after {LONGEST} s"


def rehearsed(test: Any) -> Any:
    """Call a test with `Holds` as its first argument, once in rehearsal and once in earnest."""

    @functools.wraps(test)
    def twice(*args: Any, **more: Any) -> None:
        for rehearsal in (True, False):
            with Holds(rehearsal) as holds:
                test(holds, *args, **more)

    # pytest takes arguments for fixtures; the first is none.
    del twice.__wrapped__  # type: ignore[attr-defined]
    _, *given = inspect.signature(test).parameters.values()
    twice.__signature__ = inspect.Signature(given)  # type: ignore[attr-defined]
    return twice


def _spare_pinned_memory() -> None:
    """A held copy keeps its pinned memory, so a test may need more of it at once than its rehearsal did."""
    spare = [torch.empty(size, dtype=torch.uint8).pin_memory() for size in (16, 64, 256, 1024) for _ in range(8)]
    del spare
