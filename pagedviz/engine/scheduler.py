"""The scheduler: each engine step decides who computes how many tokens, in one launch, with blocks for all of them.

A step is `schedule`, then the launch (`write`), then the outputs (`sampled`). It drives a block manager, reports one
event a change as that does, and owns the queues: a request waits, runs, or is swapped out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pagedviz.engine import errors, words
from pagedviz.engine.admission import Asked, can_ever
from pagedviz.engine.block_manager import BlockManager
from pagedviz.engine.events import Event, Token
from pagedviz.engine.orders import Waiting
from pagedviz.engine.request import Request
from pagedviz.engine.request_events import (
    RequestAborted,
    RequestAdmitted,
    RequestDropped,
    RequestFinished,
    RequestPreempted,
    RequestScheduled,
    RequestSubmitted,
    RequestSwappedIn,
    RequestWaits,
    StepStarted,
    TokensSampled,
)
from pagedviz.engine.snapshot import RequestState, Snapshot


@dataclass(frozen=True)
class Limits:
    """Of a step: `max_num_batched_tokens` are computed at most (the token budget), for `max_num_seqs` at most.
    `watermark` is the part of the pool, 0 to 1, that admissions leave free."""

    max_num_batched_tokens: int = 32
    max_num_seqs: int = 8
    watermark: float = 0.0


class Scheduler:
    """Serves requests on a block manager, by the policies of the manager's profile."""

    def __init__(self, manager: BlockManager, limits: Limits, report: Callable[[Event], None]) -> None:
        self.manager = manager
        self.profile = manager.profile
        self.limits = limits
        self.requests: dict[str, Request] = {}
        self.waiting: list[str] = []
        self.running: list[str] = []
        self.swapped: list[str] = []
        self.scheduled: dict[str, int] = {}  # tokens of this step's launch
        self.engine_step = 0
        self.token_budget = 0
        self._budget_left = 0
        self.preempted = False  # was anybody, in this step?
        self._calm_steps = 0  # since somebody was preempted
        self._reasons: dict[str, str] = {}  # why who waits waits, as it was told last
        self._report = report

    # --- what a user can do ---

    def submit(
        self,
        seq_id: str,
        prompt: Sequence[Token],
        num_tokens: int,
        *,
        priority: int = 0,
        salt: str | None = None,
        says: Sequence[Token] = (),
    ) -> None:
        """Let a request wait for `num_tokens` outputs behind its prompt. One that can never fit is refused at once."""
        if seq_id in self.requests or seq_id in self.manager.sequences:
            raise errors.DuplicateSequence(seq_id=seq_id)
        if not prompt:
            raise errors.NoTokens(seq_id=seq_id)
        arrival = len(self.requests)
        request = Request(seq_id, tuple(prompt), num_tokens, arrival, priority, salt, tuple(says))
        self._must_ever_fit(request)
        self.requests[seq_id] = request
        self.waiting.append(seq_id)
        place = len(self.waiting) - 1
        self._report(RequestSubmitted(seq_id, request.prompt, num_tokens, priority, salt, place))

    def abort(self, seq_id: str) -> None:
        """Forget a request, wherever it is."""
        if not self.owns(seq_id):
            unfinished = (*self.running, *self.swapped, *self.waiting)
            raise errors.UnknownRequest(seq_id=seq_id, known=", ".join(unfinished) or "none at all")
        for queue in (self.waiting, self.running, self.swapped):
            if seq_id in queue:
                queue.remove(seq_id)
        self.scheduled.pop(seq_id, None)
        self._report(RequestAborted(seq_id, len(self.requests[seq_id].output)))
        if seq_id in self.manager.sequences:
            self.manager.free(seq_id)

    def owns(self, seq_id: str) -> bool:
        """Is it a request that has not finished? Then its sequence is the scheduler's alone."""
        return seq_id in self.waiting or seq_id in self.running or seq_id in self.swapped

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.running or self.swapped)

    # --- a step ---

    def schedule(self) -> None:
        """Decide who computes what in the next launch, and give them their blocks."""
        if not self.has_work:
            raise errors.NothingToSchedule()
        self.engine_step = self.manager.engine_step
        self.token_budget = self._budget_left = self.limits.max_num_batched_tokens
        self.scheduled = {}
        self._report(StepStarted(self.engine_step, self.token_budget))
        self._calm_steps += 1
        self.preempted = False
        self.profile.batching(self)
        while self.swapped and not self.scheduled and not self.running:
            self._drop(self.swapped[-1], "it cannot come back, and nobody runs who would make room")
            self.preempted = False
            self.profile.batching(self)

    def write(self) -> None:
        """The launch: all that was scheduled is written at once."""
        if self.scheduled:
            self.manager.write(self.scheduled)

    def due(self) -> list[str]:
        """Whose newest known token has just been computed: the model has an output for each."""
        return [s for s in self.scheduled if self.manager.sequences[s].seq_len == len(self.requests[s].tokens)]

    def sampled(self, outputs: Mapping[str, Token]) -> None:
        """Take the outputs of a launch; who has all that was wanted is finished and lets go of everything."""
        if not outputs:
            return
        for seq_id, token in outputs.items():
            self.requests[seq_id].output.append(token)
        said = words.named([f"{seq_id} says “{token}”" for seq_id, token in outputs.items()])
        self._report(TokensSampled(tuple(outputs), tuple((token,) for token in outputs.values()), said))
        for seq_id in outputs:
            if not self.requests[seq_id].outputs_left:
                self.running.remove(seq_id)
                self.scheduled.pop(seq_id)
                self._report(RequestFinished(seq_id, self.requests[seq_id].num_tokens))
                self.manager.free(seq_id)

    def snapshot(self) -> Snapshot:
        """The state now, frozen: the manager's, and the queues."""
        return replace(
            self.manager.snapshot(),
            requests={
                seq_id: RequestState(r.prompt, {seq_id: tuple(r.output)}, r.num_tokens, r.priority, r.salt)
                for seq_id, r in self.requests.items()
            },
            waiting=tuple(self.waiting),
            running=tuple(self.running),
            swapped=tuple(self.swapped),
            scheduled=dict(self.scheduled),
            engine_step=self.engine_step,
            token_budget=self.token_budget,
        )

    # --- what a batching asks for ---

    @property
    def is_empty(self) -> bool:
        return not self.scheduled

    @property
    def anybody_runs(self) -> bool:
        return bool(self.running)

    def continue_prefills(self) -> None:
        self._continue(lambda request: self._computed(request) < request.prefill_until)

    def continue_running(self) -> None:
        self._continue(lambda request: True)

    def swap_in(self) -> None:
        for seq_id in list(self.swapped):
            if self.preempted or not self._budget_left or self._is_full:
                return
            request, seq = self.requests[seq_id], self.manager.sequences[seq_id]
            num_tokens = self._chunk(request)
            growth = self.manager.blocks_for(seq.seq_len + num_tokens) - len(seq.block_table)
            needed = len(seq.host_blocks) + max(0, growth)
            if not num_tokens or self._reason_to_wait(request, needed, needed):
                return
            if not seq.is_resident:
                self.manager.reload(seq_id)
            self.swapped.remove(seq_id)
            self.running.append(seq_id)
            self._report(RequestSwappedIn(seq_id))
            if not self._extend(request, num_tokens):
                return

    def admit(self) -> None:
        if self.preempted:
            return
        waiting = [self._as_waiting(self.requests[seq_id]) for seq_id in self.waiting]
        for seq_id in [waits.seq_id for waits in self.profile.order(waiting)]:
            reason = self._admit(self.requests[seq_id])
            if reason:
                # Told once; but a step in which nothing happens says why.
                if self._reasons.get(seq_id) != reason or not self.scheduled:
                    self._reasons[seq_id] = reason
                    self._report(RequestWaits(seq_id, reason))
                return

    # --- how ---

    @property
    def _free(self) -> int:
        return len(self.manager.pool.free_blocks)

    @property
    def _total(self) -> int:
        return self.manager.pool.num_blocks - self.profile.null_block

    @property
    def _watermark(self) -> int:
        """In blocks, as vLLM counts them: of the whole pool, rounded down."""
        return int(self.limits.watermark * self.manager.pool.num_blocks)

    @property
    def _is_full(self) -> bool:
        return len(self.running) >= self.limits.max_num_seqs

    def _computed(self, request: Request) -> int:
        return self.manager.sequences[request.seq_id].seq_len

    def _chunk(self, request: Request) -> int:
        left = len(request.tokens) - self._computed(request)
        return self.profile.chunking(left, self._budget_left, not self.scheduled)

    def _as_waiting(self, request: Request) -> Waiting:
        hits = self.manager.longest_prefix(request.tokens, request.salt)
        num_hit_tokens = len(hits) * self.manager.block_size
        return Waiting(request.seq_id, request.arrival, request.priority, num_hit_tokens)

    def _must_ever_fit(self, request: Request) -> None:
        seq_id, most = request.seq_id, request.most_tokens
        needed, budget = self.manager.blocks_for(most), self.limits.max_num_batched_tokens
        if needed > self._total:
            raise errors.NeverFits(seq_id=seq_id, needed=needed, total=self._total)
        if not can_ever(self.profile.admission, needed, self._total, self._watermark):
            raise errors.NeverAdmitted(seq_id=seq_id, needed=needed, watermark=self._watermark, total=self._total)
        if not self.profile.chunking(most, budget, True):
            raise errors.OverBudget(seq_id=seq_id, most=most, budget=budget)

    def _continue(self, who: Callable[[Request], bool]) -> None:
        for seq_id in list(self.running):
            request = self.requests[seq_id]
            # Somebody before it may have preempted it meanwhile.
            if seq_id not in self.running or seq_id in self.scheduled or not who(request):
                continue
            num_tokens = self._chunk(request) if self._budget_left else 0
            if not num_tokens or not self._extend(request, num_tokens):
                return

    def _extend(self, request: Request, num_tokens: int) -> bool:
        """Schedule the next tokens of who runs, at the cost of others if need be. False: it was preempted itself."""
        start = self._computed(request)
        while True:
            try:
                self.manager.extend(request.seq_id, request.tokens[start : start + num_tokens])
            except errors.NoFreeBlocks:
                if self._clear_leftovers():
                    continue
                victim = self.profile.victim([self.requests[seq_id] for seq_id in self.running])
                self._preempt(victim, request)
                if victim is request:
                    return False
            else:
                self._note_scheduled(request.seq_id, num_tokens)
                return True

    def _admit(self, request: Request) -> str:
        """Admit a waiting request, or say why not."""
        tokens, manager = request.tokens, self.manager
        if self.swapped:
            return f"{self.swapped[0]} was swapped out, and comes back before anybody new"
        if self._is_full:
            run = "1 runs" if len(self.running) == 1 else f"{len(self.running)} run"
            return f"{run} already, and max_num_seqs is {self.limits.max_num_seqs}"
        if not self._budget_left:
            return f"this step's budget, {self.token_budget}, is spent"
        whole = manager.need(tokens, request.salt, len(tokens))
        left = len(tokens) - whole.num_hit_tokens
        num_tokens = self.profile.chunking(left, self._budget_left, not self.scheduled)
        if not num_tokens:
            return f"{left} tokens are to be computed at once, and this step's budget has {self._budget_left} left"
        until = whole.num_hit_tokens + num_tokens
        seq_len = self.profile.prompt_blocks(until, len(tokens))
        now = manager.need(tokens, request.salt, seq_len).from_queue
        reason = self._reason_to_wait(request, now, whole.from_queue)
        if reason:
            return reason
        self.waiting.remove(request.seq_id)
        self.running.append(request.seq_id)
        self._reasons.pop(request.seq_id, None)
        request.prefill_until = len(tokens)
        self._report(RequestAdmitted(request.seq_id))
        manager.admit(request.seq_id, tokens, request.salt, until, seq_len=seq_len, managed=True)
        self._note_scheduled(request.seq_id, num_tokens)
        return ""

    def _reason_to_wait(self, request: Request, now: int, prompt: int) -> str:
        """Ask the profile's admission, for who is admitted as for who was swapped out."""
        alone, expected = not self.scheduled and not self.running, self._expected_blocks(request)
        return self.profile.admission(Asked(now, prompt, self._free, self._total, self._watermark, alone, expected))

    def _note_scheduled(self, seq_id: str, num_tokens: int) -> None:
        self.scheduled[seq_id] = num_tokens
        self._budget_left -= num_tokens
        self._report(RequestScheduled(seq_id, num_tokens, self._budget_left))

    def _expected_blocks(self, request: Request) -> int:
        """What outputs are likely to take yet: all of this request's, of those who run 70% at first, and less with
        every step in which nobody had to be preempted. SGLang's `new_token_ratio` does so, in smaller steps."""
        ratio = max(0.1, 0.7 - 0.02 * self._calm_steps)
        outputs = sum(self.requests[seq_id].outputs_left for seq_id in self.running)
        return self.manager.blocks_for(int(outputs * ratio) + request.outputs_left)

    def _preempt(self, victim: Request, requester: Request) -> None:
        seq_id, self.preempted, self._calm_steps = victim.seq_id, True, 0
        moving, host_free = self.manager.movable(seq_id), len(self.manager.host_pool.free_blocks)
        how, why = self.profile.preemption(len(moving), host_free)
        self.running.remove(seq_id)
        self._budget_left += self.scheduled.pop(seq_id, 0)
        computed = self._computed(victim)
        if how == "swap":
            num_blocks, verb = (
                len(self.manager.sequences[seq_id].device_blocks),
                "moves" if len(moving) == 1 else "move",
            )
            some = f"{len(moving)} of its {num_blocks} blocks {verb} to the host, and others name the rest"
            then = "All that it has moves to the host" if len(moving) == num_blocks else some
            self.swapped.append(seq_id)
        else:
            because = f" ({why})" if why else ""
            then = f"It lets go of its blocks{because} and waits again, all of its tokens ({len(victim.tokens)}) kept"
            self.waiting.insert(0, seq_id)
        self._report(RequestPreempted(seq_id, requester.seq_id, computed, how, then))
        if how == "swap":
            self.manager.unschedule(seq_id)
            self.manager.spill(seq_id)
        else:
            self.manager.free(seq_id)

    def _clear_leftovers(self) -> bool:
        """Take from somebody swapped out what stayed on the device for a sharer who is gone. False: there is none."""
        for seq_id in reversed(self.swapped):
            moving = self.manager.movable(seq_id)
            if moving:
                if len(moving) <= len(self.manager.host_pool.free_blocks):
                    self.manager.spill(seq_id)
                else:
                    self._drop(seq_id, "the host has no room for the rest of it")
                return True
        return False

    def _drop(self, seq_id: str, reason: str) -> None:
        """Nobody computes from the host, so who cannot come back is computed again."""
        self.swapped.remove(seq_id)
        self.waiting.insert(0, seq_id)
        self._report(RequestDropped(seq_id, len(self.requests[seq_id].tokens), reason))
        self.manager.free(seq_id)
