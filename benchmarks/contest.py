"""One case, several contestants: this project's kernel first, then the peers, each checked before it is timed."""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import ModuleType

import torch
from torch import Tensor

from benchmarks.peers import PEERS
from benchmarks.peers.absent import Absent
from pagedviz.measurements import OURS, Row
from pagedviz.runtime.measuring.bandwidth import Launch, capture, median_microseconds

WRONG = 3e-2  # of the largest value; bfloat16's own rounding is a tenth of that


class Contest:
    """The number of rounds, and the peers to measure."""

    def __init__(self, rounds: int = 15, peers: Sequence[ModuleType] = PEERS) -> None:
        self.rounds, self.peers = rounds, peers

    def without(self, *peers: ModuleType) -> "Contest":
        """The same with fewer peers."""
        return Contest(self.rounds, [peer for peer in self.peers if peer not in peers])

    def versions(self) -> dict[str, str]:
        """Each peer's version, or why it is absent."""
        found = {}
        for peer in self.peers:
            try:
                found[peer.NAME] = peer.version()
            except Absent as absent:
                found[peer.NAME] = str(absent)
        # The objects of the imports stay: without `freeze`, searching them after each contestant takes longer than it.
        gc.collect()
        gc.freeze()
        return found

    def rows(
        self,
        like: Row,
        ours: Sequence[Launch],
        theirs: Callable[[ModuleType], Sequence[Launch]],
        error: Callable[[Sequence[Tensor]], float],
        rate: Callable[[float], float],
    ) -> Iterator[Row]:
        """Measure one case. `like` has the fields that its rows share; `theirs` returns the launches of a peer.

        `error` compares the launches' outputs; `rate` turns microseconds of one launch into the row's unit.
        """
        yield self._run(like, ours, "graph", error, rate)
        for peer in self.peers:
            made = replace(like, who=peer.NAME)
            try:
                peer.version()
                row = self._run(made, theirs(peer), peer.TIMED, error, rate)
            except Absent as absent:
                row = replace(made, reason=str(absent))
            except Exception as failure:  # a failed peer is a row with a reason, and the others go on
                row = replace(made, reason=f"failed: {_one_line(failure)}")
            yield row
            gc.collect()
            torch.cuda.empty_cache()

    def _run(
        self,
        like: Row,
        launches: Sequence[Launch],
        timed: str,
        error: Callable[[Sequence[Tensor]], float],
        rate: Callable[[float], float],
    ) -> Row:
        def one_by_one() -> list[Tensor]:
            return [launch() for launch in launches]

        run: Callable[[], object] = one_by_one
        if timed == "graph":
            try:
                graph, outputs = capture(launches)
                run = graph.replay
            except RuntimeError:  # it cannot be captured; if it cannot run at all, it raises again below
                timed = "events"
        if timed != "graph":
            outputs = [out if isinstance(out, Tensor) else torch.from_dlpack(out) for out in one_by_one()]
        found = error(outputs)
        if not found < WRONG:
            return replace(like, reason=f"its output is wrong: off by {found:.1e} of the largest value")
        clock = _host_microseconds if timed == "host clock" else median_microseconds
        microseconds = clock(run, self.rounds) / len(launches)
        numbers = {"microseconds": round(microseconds, 2), "rate": round(rate(microseconds), 1)}
        return replace(like, **numbers, error=float(f"{found:.2g}"), timed=timed)


def base_row(table: str, case: str, unit: str, cache: Tensor, dtype: torch.dtype) -> Row:
    """The fields that all rows of a case share; the cache is [num_blocks, block_size, num_kv_heads, head_dim]."""
    names = (str(each).removeprefix("torch.") for each in (dtype, cache.dtype))
    return Row(table, case, OURS, unit, cache.shape[1], cache.shape[3], *names)


def _host_microseconds(run: Callable[[], object], rounds: int) -> float:
    """The mean of consecutive rounds, for a peer on a stream that torch's events cannot mark."""
    run()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(rounds):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e6 / rounds


def _one_line(failure: Exception) -> str:
    first = next((line.strip() for line in str(failure).splitlines() if line.strip()), "")
    return f"{type(failure).__name__}: {first}"[:160]
