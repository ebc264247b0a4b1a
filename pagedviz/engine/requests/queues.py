"""The requests of a server, and the state of each: it waits, runs, is swapped out, or has ended."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from pagedviz.engine.log import errors
from pagedviz.engine.log.events.base import Event, Token
from pagedviz.engine.log.events.requests import RequestAborted, RequestFinished, RequestSubmitted
from pagedviz.engine.log.snapshot import RequestState, Snapshot
from pagedviz.engine.manager.block_manager import BlockManager
from pagedviz.engine.policies.admission import can_ever
from pagedviz.engine.policies.limits import Limits
from pagedviz.engine.policies.windows import most_blocks
from pagedviz.engine.requests.request import Request


class RequestQueues:
    """Requests by name, and three queues of names. `scheduled` counts the tokens of this step's launch, by sequence."""

    def __init__(self, manager: BlockManager, limits: Limits, report: Callable[[Event], None]) -> None:
        self.manager = manager
        self.profile = manager.profile
        self.limits = limits
        self.requests: dict[str, Request] = {}
        self.waiting: list[str] = []
        self.running: list[str] = []
        self.swapped: list[str] = []
        self.scheduled: dict[str, int] = {}
        self.engine_step = 0
        self.token_budget = 0
        self.report = report

    def submit(
        self,
        seq_id: str,
        prompt: Sequence[Token],
        num_tokens: int,
        *,
        priority: int = 0,
        salt: str | None = None,
        says: Sequence[Token] = (),
        samples: int = 1,
        beams: int = 1,
    ) -> None:
        """Put a request in the waiting queue. It wants `num_tokens` outputs. One that can never fit is refused at once.

        Several `samples` are drawn side by side; of several `beams` the likeliest stay. Both need a profile with fork.
        """
        self.must_be_new(seq_id)
        if not prompt:
            raise errors.NoTokens(seq_id=seq_id)
        arrival = len(self.requests)
        request = Request(seq_id, tuple(prompt), num_tokens, arrival, priority, salt, tuple(says), samples, beams)
        if request.width > 1:
            self._must_be_able_to_fork(request)
        self._must_ever_fit(request)
        self.requests[seq_id] = request
        self.waiting.append(seq_id)
        self.report(
            RequestSubmitted(
                seq_id=seq_id,
                tokens=request.prompt,
                num_tokens=num_tokens,
                priority=priority,
                salt=salt,
                queue_index=len(self.waiting) - 1,
                samples=samples,
                beams=beams,
            )
        )

    def abort(self, seq_id: str) -> None:
        """End a request, whether it waits, runs or is swapped out."""
        unfinished = (*self.running, *self.swapped, *self.waiting)
        if seq_id not in unfinished:
            raise errors.UnknownRequest(seq_id=seq_id, known=", ".join(unfinished) or "none at all")
        request = self.requests[seq_id]
        self.take_out(request)
        self.report(RequestAborted(seq_id, len(request.output)))
        self.free(request)

    def owns(self, seq_id: str) -> bool:
        """Whether this names an unfinished request or one of its sequences. Only the scheduler changes these."""
        unfinished = (*self.running, *self.swapped, *self.waiting)
        return any(seq_id == name or seq_id in self.requests[name].outputs for name in unfinished)

    def must_be_new(self, seq_id: str) -> None:
        """Raise `DuplicateSequence` if a request has or had this name, or if a sequence has it or may be given it."""
        request = self.requests.get(seq_id.rpartition(".")[0])
        if seq_id in self.requests or seq_id in self.manager.sequences or (request and request.width > 1):
            raise errors.DuplicateSequence(seq_id=seq_id)

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.running or self.swapped)

    def snapshot(self) -> Snapshot:
        """The state now, frozen: the manager's state and the queues."""
        return replace(
            self.manager.snapshot(),
            requests={name: _request_state(request) for name, request in self.requests.items()},
            waiting=tuple(self.waiting),
            running=tuple(self.running),
            swapped=tuple(self.swapped),
            scheduled=dict(self.scheduled),
            engine_step=self.engine_step,
            token_budget=self.token_budget,
        )

    # --- used by the scheduler and for its outputs ---

    def live(self, request: Request) -> list[str]:
        """The sequences of a request that have a block table."""
        return [seq_id for seq_id in request.outputs if seq_id in self.manager.sequences]

    def request_of(self, seq_id: str) -> Request:
        """The running request that a sequence belongs to."""
        return next(self.requests[name] for name in self.running if seq_id in self.requests[name].outputs)

    def computed(self, request: Request) -> int:
        """How many of its tokens the cache holds, the same for each of its sequences. Drafts do not count."""
        seq = self.manager.sequences[request.first]
        return seq.seq_len - seq.unverified

    def left(self, request: Request) -> int:
        """How many known tokens each of its sequences has not computed."""
        return len(request.to_compute) - self.computed(request)

    def take_out(self, request: Request) -> int:
        """Take a request out of its queue and out of the launch. Return how many tokens it would have computed."""
        for queue in (self.waiting, self.running, self.swapped):
            if request.seq_id in queue:
                queue.remove(request.seq_id)
        return sum(self.scheduled.pop(seq_id, 0) for seq_id in request.outputs)

    def free(self, request: Request) -> None:
        """Free all blocks of a request."""
        request.forked = False
        for seq_id in self.live(request):
            self.manager.free(seq_id)

    def finish(self, request: Request) -> None:
        self.take_out(request)
        self.report(RequestFinished(request.seq_id, request.num_tokens))
        self.free(request)

    @property
    def _watermark(self) -> int:
        """The watermark in blocks: a part of the whole pool, rounded down, as in vLLM."""
        return int(self.limits.watermark * self.manager.pool.num_blocks)

    def _must_be_able_to_fork(self, request: Request) -> None:
        seq_id, limits = request.seq_id, self.limits
        if not self.profile.fork:
            raise errors.ForkUnsupported(seq_id=seq_id, profile=self.profile.name)
        for name in (*self.requests, *self.manager.sequences):
            if name.startswith(f"{seq_id}."):
                raise errors.DuplicateSequence(seq_id=name)
        most = min(limits.max_num_seqs, limits.max_num_batched_tokens)
        if request.width > most:
            raise errors.TooWide(seq_id=seq_id, width=request.width, most=most)

    def _must_ever_fit(self, request: Request) -> None:
        seq_id, most = request.seq_id, request.most_tokens
        budget, total = self.limits.max_num_batched_tokens, self.manager.total
        chunk = self.profile.chunking(len(request.prompt) if request.width > 1 else most, budget, True)
        needed = self._most_blocks(request, self.profile.prompt_blocks(chunk or most, most))
        if needed > total:
            raise errors.NeverFits(seq_id=seq_id, needed=needed, total=total)
        if not can_ever(self.profile.admission, needed, total, self._watermark):
            raise errors.NeverAdmitted(seq_id=seq_id, needed=needed, watermark=self._watermark, total=total)
        # After a preemption all known tokens are computed again: in one step if the profile does not split them.
        again = (request.num_tokens - 1) * request.width if request.width > 1 else most
        if not chunk or (again and not self.profile.chunking(again, budget, True)):
            raise errors.OverBudget(seq_id=seq_id, most=max(again, most), budget=budget)

    def _most_blocks(self, request: Request, chunk: int) -> int:
        """How many blocks a request holds at most, alone in the pool. Its sequences share the prompt's full blocks."""
        size, release, windows = self.manager.block_size, self.profile.window_release, self.manager.windows
        one = sum(most_blocks(request.most_tokens, chunk, window, size, release) for window in windows)
        shared = len(request.prompt) // size if windows == (None,) else 0
        return shared + request.width * (one - shared)


def _request_state(request: Request) -> RequestState:
    outputs = {seq_id: tuple(output) for seq_id, output in request.outputs.items()}
    given = request.num_tokens, request.priority, request.salt, request.samples, request.beams
    return RequestState(request.prompt, outputs, *given, dict(request.scores))
