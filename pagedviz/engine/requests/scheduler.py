"""The scheduler decides which requests compute how many tokens in each engine step, and gives them their blocks.

A step is `schedule`, then the launch (`write`), then what its outputs change (`outputs`). The scheduler drives a block
manager. Like the manager, it reports one event for each change.
"""

from collections.abc import Callable, Sequence

from pagedviz.engine.log import errors
from pagedviz.engine.log.events.base import Event, Token
from pagedviz.engine.log.events.requests import (
    RequestAdmitted,
    RequestDropped,
    RequestPreempted,
    RequestScheduled,
    RequestSwappedIn,
    RequestWaits,
    StepStarted,
)
from pagedviz.engine.log.text import sentences
from pagedviz.engine.manager.block_manager import BlockManager
from pagedviz.engine.policies.admission import AdmissionInput
from pagedviz.engine.policies.limits import Limits, Speculation
from pagedviz.engine.policies.orders import Waiting
from pagedviz.engine.requests.queues import RequestQueues
from pagedviz.engine.requests.request import Request

ON_ITS_WAY = "a part of its prompt is being loaded from the host"


class Scheduler(RequestQueues):
    """Serves requests on a block manager, with the policies of the manager's profile."""

    def __init__(
        self,
        manager: BlockManager,
        limits: Limits,
        report: Callable[[Event], None],
        speculation: Speculation = Speculation(),  # noqa: B008 (it is frozen)
    ) -> None:
        super().__init__(manager, limits, report)
        self.speculation = speculation
        self._budget_left = 0
        self._drafts_left = 0
        self.preempted = False  # whether this step preempted a request
        self._calm_steps = 0  # steps since the last preemption
        self._reasons: dict[str, str] = {}  # the last reported reason of each waiting request

    # --- a step ---

    def schedule(self) -> None:
        """Decide what the next launch computes, and give each sequence its blocks."""
        if not self.has_work:
            raise errors.NothingToSchedule()
        self.engine_step = self.manager.engine_step
        self.token_budget = self._budget_left = self.limits.max_num_batched_tokens
        self._drafts_left = self.speculation.load_limit
        self.scheduled = {}
        self.report(StepStarted(self.engine_step, self.token_budget))
        self.manager.finish_transfers()
        self._calm_steps += 1
        self.preempted = False
        self.profile.batching(self)
        while self.swapped and not self.scheduled and not self.running:
            reason = "it does not fit on the device, and no request is running that would free blocks"
            self._drop(self.requests[self.swapped[-1]], reason)
            self.preempted = False
            self.profile.batching(self)

    def write(self) -> None:
        """The launch: write all scheduled tokens at once."""
        if self.scheduled:
            self.manager.write(self.scheduled)

    def num_drafts(self, seq_id: str) -> int:
        """How many drafts a sequence should get: no more than its missing outputs less one, and none if its request has
        several sequences."""
        request = self.request_of(seq_id)
        return min(self.speculation.num_drafts, request.outputs_left - 1) if request.width == 1 else 0

    def propose(self, seq_id: str, drafts: Sequence[Token], confidences: Sequence[float]) -> None:
        """Put drafts behind the newest token of a sequence. Its next launch verifies them."""
        if drafts:
            self.manager.propose(seq_id, drafts, confidences)

    # --- what a batching calls (`policies.batching.Step`) ---

    @property
    def is_empty(self) -> bool:
        return not self.scheduled

    @property
    def has_running(self) -> bool:
        return bool(self.running)

    def continue_prefills(self) -> None:
        self._continue(lambda request: self.computed(request) < request.prefill_until)

    def continue_running(self) -> None:
        self._continue(lambda request: True)

    def swap_in(self) -> None:
        for name in list(self.swapped):
            request = self.requests[name]
            if self.preempted or not self._budget_left or self._has_no_seat(request):
                return
            num_tokens, live = self._chunk(request), self.live(request)
            away = {block for seq_id in live for block in self.manager.sequences[seq_id].host_blocks}
            needed = len(away) + sum(self._growth(seq_id, num_tokens) for seq_id in live)
            if not num_tokens or self._reason_to_wait(request, needed, needed):
                return
            for seq_id in live:
                if not self.manager.sequences[seq_id].is_resident:
                    self.manager.reload(seq_id)
            self.swapped.remove(name)
            self.running.append(name)
            self.report(RequestSwappedIn(name))
            if not self._extend(request, num_tokens):
                return

    def admit(self) -> None:
        if self.preempted:
            return
        waiting = [self._as_waiting(self.requests[name]) for name in self.waiting]
        for name in [waits.seq_id for waits in self.profile.order(waiting)]:
            reason = self._admit(self.requests[name])
            if reason:
                # Report a reason once. A step that schedules nothing reports it again.
                if self._reasons.get(name) != reason or not self.scheduled:
                    self._reasons[name] = reason
                    self.report(RequestWaits(name, reason))
                # Later requests may overtake a request that waits for the host.
                if reason != ON_ITS_WAY:
                    return

    # --- how it does so ---

    @property
    def _free_blocks(self) -> int:
        return len(self.manager.pool.free_blocks)

    def _has_no_seat(self, request: Request) -> bool:
        return sum(self.requests[name].width for name in self.running) + request.width > self.limits.max_num_seqs

    def _chunk(self, request: Request) -> int:
        """How many tokens each of its sequences computes next, the same for all."""
        budget = self._budget_left // len(self.live(request))
        return self.profile.chunking(self.left(request), budget, not self.scheduled)

    def _growth(self, seq_id: str, num_tokens: int) -> int:
        """How many blocks a sequence needs for so many more tokens."""
        seq = self.manager.sequences[seq_id]
        return max(0, self.manager.blocks_for(seq.seq_len + num_tokens) - len(seq.block_table))

    def _as_waiting(self, request: Request) -> Waiting:
        hits = self.manager.longest_prefix(request.to_compute, request.salt)
        num_hit_tokens = len(hits) * self.manager.block_size
        return Waiting(request.seq_id, request.arrival, request.priority, num_hit_tokens)

    def _continue(self, wanted: Callable[[Request], bool]) -> None:
        for name in list(self.running):
            request = self.requests[name]
            # A request before it may have preempted it meanwhile.
            if name not in self.running or request.first in self.scheduled or not wanted(request):
                continue
            num_tokens = self._chunk(request) if self._budget_left else 0
            if not num_tokens or not self._extend(request, num_tokens):
                return

    def _extend(self, request: Request, num_tokens: int) -> bool:
        """Schedule the next tokens of a running request; preempt others if needed. False: it was preempted itself."""
        for seq_id in self.live(request):
            start = self.computed(request)
            known = [*request.prompt, *request.outputs[seq_id]][start : start + num_tokens]
            drafts = self._drafts(seq_id, num_tokens)
            while not self._extended(seq_id, [*known, *drafts]):
                if self._clear_leftovers():
                    continue
                victim = self.profile.victim([self.requests[name] for name in self.running])
                self._preempt(victim, request)
                if victim is request:
                    return False
            self._drafts_left -= len(drafts)
            self._note_scheduled(seq_id, num_tokens + len(drafts))
        return True

    def _extended(self, seq_id: str, tokens: Sequence[Token]) -> bool:
        try:
            self.manager.extend(seq_id, tokens)
        except errors.NoFreeBlocks:
            return False
        return True

    def _drafts(self, seq_id: str, num_tokens: int) -> Sequence[Token]:
        """The drafts of a sequence that this launch verifies: as many as the load limit and the budget allow."""
        seq = self.manager.sequences[seq_id]
        if not seq.drafts:
            return ()
        room = self._budget_left - num_tokens
        self.manager.drop_drafts(seq_id, self._drafts_left, f"this step verifies at most {self._drafts_left} more")
        self.manager.drop_drafts(seq_id, room, f"the step's budget has room for {room}")
        return seq.drafts

    def _admit(self, request: Request) -> str:
        """Admit a waiting request and return "", or return the reason why it waits."""
        tokens, manager = request.to_compute, self.manager
        if self.swapped:
            return f"{self.swapped[0]} was swapped out, and comes back before a new request is admitted"
        if self._has_no_seat(request):
            return self._seats_taken(request)
        if not self._budget_left:
            return f"this step's budget of {sentences.count(self.token_budget, 'token')} is used up"
        chunk = self.profile.chunking(len(tokens), self.token_budget, True) or len(tokens)
        chunk = self.profile.prompt_blocks(chunk, len(tokens))
        whole = manager.demand(tokens, request.salt, len(tokens), chunk)
        left = len(tokens) - whole.num_hit_tokens
        num_tokens = self.profile.chunking(left, self._budget_left, not self.scheduled)
        if not num_tokens:
            tokens_left = sentences.count(self._budget_left, "token")
            return f"its {left} tokens must be computed in one step, and this step's budget has {tokens_left} left"
        until = whole.num_hit_tokens + num_tokens
        seq_len = self.profile.prompt_blocks(until, len(tokens))
        now = manager.demand(tokens, request.salt, seq_len).from_queue
        reason = self._reason_to_wait(request, now, max(now, whole.from_queue))
        if reason:
            return reason
        if manager.fetch(tokens, request.salt):
            return ON_ITS_WAY
        self.waiting.remove(request.seq_id)
        self.running.append(request.seq_id)
        self._reasons.pop(request.seq_id, None)
        request.prefill_until = len(tokens)
        self.report(RequestAdmitted(request.seq_id))
        manager.admit(request.first, tokens, request.salt, until, seq_len=seq_len, managed=True)
        self._note_scheduled(request.first, num_tokens)
        return ""

    def _seats_taken(self, request: Request) -> str:
        run = sentences.count(sum(self.requests[name].width for name in self.running), "sequence")
        verb = "runs" if run == "1 sequence" else "run"
        more = f", it needs {request.width}" if request.width > 1 else ""
        return f"{run} {verb} already{more}, and max_num_seqs is {self.limits.max_num_seqs}"

    def _reason_to_wait(self, request: Request, now: int, prompt: int) -> str:
        """What the profile's admission answers for a waiting or swapped request: "", or the reason why it waits."""
        alone, expected = not self.scheduled and not self.running, self._expected_blocks(request)
        total = self.manager.total
        return self.profile.admission(
            AdmissionInput(now, prompt, self._free_blocks, total, self._watermark, alone, expected)
        )

    def _note_scheduled(self, seq_id: str, num_tokens: int) -> None:
        self.scheduled[seq_id] = num_tokens
        self._budget_left -= num_tokens
        self.report(RequestScheduled(seq_id, num_tokens, self._budget_left))

    def _expected_blocks(self, request: Request) -> int:
        """How many blocks the outputs of this request and of the running ones will probably take.

        It counts all outputs of this request, and 70% of those of the running ones; less after each step without a
        preemption. Source: SGLang's `new_token_ratio`, which falls in smaller steps.
        """
        ratio = max(0.1, 0.7 - 0.02 * self._calm_steps)
        running = [self.requests[name] for name in self.running]
        outputs = sum(other.outputs_left * other.width for other in running)
        return self.manager.blocks_for(int(outputs * ratio) + request.outputs_left * request.width)

    def _preempt(self, victim: Request, requester: Request) -> None:
        self.preempted, self._calm_steps = True, 0
        live = self.live(victim)
        moving, host_free = self.manager.movable(*live), len(self.manager.host_pool.free_blocks)
        how, why = self.profile.preemption(len(moving), host_free)
        computed = self.computed(victim)
        self._budget_left += self.take_out(victim)
        if how == "swap":
            blocks = {block for seq_id in live for block in self.manager.sequences[seq_id].device_blocks}
            verb = "moves" if len(moving) == 1 else "move"
            some = f"{len(moving)} of its {len(blocks)} blocks {verb} to the host. Other sequences name the rest"
            then = "All of its blocks move to the host" if len(moving) == len(blocks) else some
            self.swapped.append(victim.seq_id)
        else:
            because = f", because {why}" if why else ""
            kept = sentences.count(len(victim.tokens), "token")
            then = f"It gives up its blocks{because}. It waits again, with the same {kept}"
            self.waiting.insert(0, victim.seq_id)
        self.report(RequestPreempted(victim.seq_id, requester.seq_id, computed, how, then))
        for seq_id in live:
            self.manager.drop_drafts(seq_id, 0, "it was preempted")
            self.manager.unschedule(seq_id)
        if how == "swap":
            self.manager.spill(*live)
        else:
            self.free(victim)

    def _clear_leftovers(self) -> bool:
        """Move blocks of a swapped request that stayed on the device because another sequence named them, and no longer
        does. False: there are none."""
        for name in reversed(self.swapped):
            request = self.requests[name]
            live = self.live(request)
            moving = self.manager.movable(*live)
            if moving:
                if len(moving) <= len(self.manager.host_pool.free_blocks):
                    self.manager.spill(*live)
                else:
                    self._drop(request, "the host has no room for the rest of its blocks")
                return True
        return False

    def _drop(self, request: Request, reason: str) -> None:
        """Put a swapped request that cannot come back into the waiting queue. Its tokens are computed again."""
        self.swapped.remove(request.seq_id)
        self.waiting.insert(0, request.seq_id)
        self.report(RequestDropped(request.seq_id, len(request.tokens), reason))
        self.free(request)
