"""Plays a scenario's operations on a block manager and yields each atomic change."""

import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagedviz.engine.log import invariants
from pagedviz.engine.log.errors import CacheError, NoDrafts, NotConfident, OwnedByRequest
from pagedviz.engine.log.events.base import Event, OperationRefused, Token
from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.engine.manager.block_manager import BlockManager
from pagedviz.engine.requests import outputs
from pagedviz.engine.requests.beams import Candidates
from pagedviz.engine.requests.scheduler import Scheduler
from pagedviz.model.decoding import Decoder, Logits, confident
from pagedviz.model.dense_model import Array, dense_model
from pagedviz.run.source import PROJECT, SourceLine
from pagedviz.scenario.choices import free_queue_of, profile_of
from pagedviz.scenario.operations import (
    Abort,
    Add,
    Append,
    Draft,
    EndTransfer,
    EngineSteps,
    Fork,
    Free,
    Generate,
    Load,
    Op,
    Reload,
    ResetPrefixCache,
    Spill,
    Store,
    Submit,
    Verify,
)
from pagedviz.scenario.settings import CacheConfig


@dataclass(frozen=True)
class Happening:
    """One atomic change, before the kernels have run: the event, and the states before and after it.

    `op_index` counts the scenario's operations from 0. For a refused operation, `before` is the state before all of it.
    """

    event: Event
    before: Snapshot
    snapshot: Snapshot
    op_index: int
    op: str
    source: SourceLine
    refused: dict[str, Any] | None

    @property
    def broken(self) -> tuple[str, ...]:
        """A sentence for each broken invariant. They are checked when this is read."""
        return tuple(invariants.broken(self.before, self.event, self.snapshot))


class Player:
    """One block manager and its scheduler, driven by operations.

    `logits(seq_id, position)` returns the model's scores of the token after `position` of a sequence in the cache. It
    is called only after every earlier happening has been taken from the iterator, so the caller can compute the scores
    from those happenings. If a choice is closer to the next best than `margin`, TooClose is raised.
    """

    def __init__(self, cache: CacheConfig, seed: int, logits: Logits, margin: float = 0.0) -> None:
        self.cache = cache
        self.num_ops = 0
        self._decoder = Decoder(cache, seed, logits, margin)
        self._reported: list[tuple[Event, Snapshot, SourceLine]] = []
        self.manager = BlockManager(
            block_size=cache.block_size,
            num_blocks=cache.num_blocks,
            free_blocks=free_queue_of(cache, seed),
            host_blocks=cache.host_blocks,
            profile=profile_of(cache),
            auto_spill=cache.auto_spill,
            report=self._record,
            prefix_caching=cache.prefix_caching,
            windows=cache.windows,
            host_chunks=cache.host_chunks,
        )
        self.scheduler = Scheduler(self.manager, cache.scheduler, self._record, cache.speculation)
        self.base = self._before = self.scheduler.snapshot()

    def perform(self, op: Op) -> Iterator[Happening]:
        """Play one operation. A refused one yields a single `OperationRefused`, and the state is as it was."""
        op_index, self.num_ops = self.num_ops, self.num_ops + 1
        self.manager.engine_step += 1
        start = self._before
        try:
            for _ in self._play(op):
                yield from self._take(op, op_index)
        except CacheError as error:
            yield from self._take(op, op_index)  # empty, unless the manager changed something before it refused
            self._before = start  # so that a check sees such a change, too
            self._reported.append((OperationRefused(str(op)), self.scheduler.snapshot(), _raised_at(error)))
            yield from self._take(op, op_index, refused=error.to_json())

    def _play(self, op: Op) -> Iterator[None]:
        """Perform an operation. Pause whenever the happenings so far must be computed before it can continue."""
        owned = Append | Generate | Spill | Reload | Free | Draft | Verify
        if isinstance(op, owned) and self.scheduler.owns(op.seq_id):
            raise OwnedByRequest(seq_id=op.seq_id)
        if isinstance(op, Add | Fork):
            self.scheduler.must_be_new(op.seq_id)
        match op:
            case Add(seq_id, tokens, salt):
                self.manager.add(seq_id, tokens, salt)
            case Append(seq_id, tokens):
                self.manager.append(seq_id, tokens)
            case Generate(seq_id, num_tokens):
                self.manager.reserve(seq_id, num_tokens)
                for _ in range(num_tokens):
                    self.manager.append(seq_id, [self._decoder.greedy(seq_id, self._last_position(seq_id))])
                    yield
            case Fork(parent, seq_id):
                self.manager.fork(parent, seq_id)
            case Free(seq_id):
                self.manager.free(seq_id)
            case Spill(seq_id):
                self.manager.spill(seq_id)
            case Reload(seq_id):
                self.manager.reload(seq_id)
            case Draft():
                self._draft(op)
            case Verify(seq_id):
                yield from self._verify(seq_id)
            case Store(seq_id):
                self.manager.store(seq_id)
            case Load(tokens, salt):
                self.manager.load(tokens, salt)
            case EndTransfer(transfer_id, how):
                self.manager.end_transfer(transfer_id, how)
            case Submit(seq_id, tokens, num_tokens):
                options = {name: getattr(op, name) for name in ("says", "priority", "salt", "samples", "beams")}
                self.scheduler.submit(seq_id, tokens, num_tokens, **options)
            case Abort(seq_id):
                self.scheduler.abort(seq_id)
            case ResetPrefixCache():
                self.manager.reset_prefix_cache()
            case EngineSteps(num_steps):
                yield from self._run_steps(num_steps)
        yield

    def _draft(self, op: Draft) -> None:
        """Take slots for the model's own next token, and for drafts behind it."""
        self.manager.must_be_writable(op.seq_id)
        token = self._decoder.greedy(op.seq_id, self._last_position(op.seq_id))
        if op.tokens:
            self.manager.draft(op.seq_id, token, op.tokens)
            return
        guessed = self._decoder.drafts([*self.manager.sequences[op.seq_id].tokens, token], op.num_tokens)
        kept = confident(guessed, op.min_confidence)
        if not kept:
            first, confidence = guessed[0]
            raise NotConfident(seq_id=op.seq_id, token=first, confidence=confidence, least=op.min_confidence)
        drafts, confidences = zip(*kept, strict=True)
        self.manager.draft(op.seq_id, token, drafts, confidences)

    def _verify(self, seq_id: str) -> Iterator[None]:
        """Write a sequence's drafts in one launch, and keep those that the model chooses itself."""
        self.manager.must_be_there(seq_id)
        seq = self.manager.sequences[seq_id]
        if not seq.drafts:
            raise NoDrafts(seq_id=seq_id)
        self.manager.write([seq_id])
        yield
        self.manager.verify(seq_id, len(self._outputs(seq_id)) - 1)

    def _run_steps(self, num_steps: int) -> Iterator[None]:
        """Schedule, launch and take the outputs, until no request is left or a step changes nothing."""
        scheduler = self.scheduler
        for k in range(num_steps):
            self.manager.engine_step += k > 0
            scheduler.schedule()
            yield
            if not (scheduler.scheduled or scheduler.preempted or self.manager.is_transferring):
                return
            scheduler.write()
            yield
            outputs.fork(scheduler)
            yield
            yield from self._take_outputs()
            if not scheduler.has_work:
                return

    def _take_outputs(self) -> Iterator[None]:
        """Take the model's outputs of a launch, and draft the next tokens."""
        scheduler = self.scheduler
        beams: dict[str, dict[str, Candidates]] = {}
        said: dict[str, tuple[Token, ...]] = {}
        for seq_id in outputs.due(scheduler):
            request = scheduler.request_of(seq_id)
            if request.beams > 1:
                best = self._decoder.candidates(seq_id, self._last_position(seq_id), request.beams)
                beams.setdefault(request.seq_id, {})[seq_id] = best
            else:
                said[seq_id] = self._outputs(seq_id)
        outputs.sampled(scheduler, said)
        for name, candidates in beams.items():
            request = scheduler.requests[name]
            sums = [request.scores.get(s, 0.0) + p for s, own in candidates.items() for _, p in own]
            self._decoder.must_be_sure(sums, request.beams)
            outputs.expand(scheduler, name, candidates)
        for seq_id in said:
            if seq_id in scheduler.running and (k := scheduler.num_drafts(seq_id)) > 0:
                guessed = self._decoder.drafts(scheduler.requests[seq_id].tokens, k)
                kept = confident(guessed, scheduler.speculation.min_confidence)
                scheduler.propose(seq_id, [draft for draft, _ in kept], [confidence for _, confidence in kept])
        yield

    def _outputs(self, seq_id: str) -> tuple[Token, ...]:
        """The model's own tokens behind the newest verified one: the accepted drafts, and one more token."""
        seq = self.manager.sequences[seq_id]
        outputs: list[Token] = []
        for position in range(seq.seq_len - seq.unverified - 1, seq.seq_len):
            outputs.append(self._next(seq_id, position))
            if seq.tokens[position + 1 : position + 2] != outputs[-1:]:
                break
        return tuple(outputs)

    def _next(self, seq_id: str, position: int) -> Token:
        """The token after a position: given with the request, or the model's choice."""
        if not self.scheduler.owns(seq_id):
            return self._decoder.greedy(seq_id, position)
        request = self.scheduler.request_of(seq_id)
        if request.says:
            return request.says[position + 1 - len(request.prompt)]
        choose = self._decoder.sampled if request.samples > 1 else self._decoder.greedy
        return choose(seq_id, position)

    def _last_position(self, seq_id: str) -> int:
        return self.manager.sequences[seq_id].seq_len - 1

    def _record(self, event: Event) -> None:
        frame = sys._getframe(1)  # the line of the manager that reported
        source = SourceLine(_relative(frame.f_code.co_filename), frame.f_lineno)
        self._reported.append((event, self.scheduler.snapshot(), source))

    def _take(self, op: Op, op_index: int, refused: dict[str, Any] | None = None) -> Iterator[Happening]:
        reported, self._reported = self._reported, []
        for event, snapshot, source in reported:
            before, self._before = self._before, snapshot
            yield Happening(event, before, snapshot, op_index, str(op), source, refused)


def planner(cache: CacheConfig, seed: int, margin: float = 0.0) -> Player:
    """A player that takes the model's tokens from the dense model, before any kernel has run."""
    model = dense_model(cache, seed)

    def logits(seq_id: str, position: int) -> Array:
        return model.logits(player.manager.sequences[seq_id].tokens[: position + 1])

    player = Player(cache, seed, logits, margin)
    return player


def _raised_at(error: CacheError) -> SourceLine:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    assert trace is not None
    return SourceLine(_relative(trace.tb_frame.f_code.co_filename), trace.tb_lineno)


@functools.cache
def _relative(file: str) -> str:
    return Path(file).relative_to(PROJECT).as_posix()
