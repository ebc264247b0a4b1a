"""Any requests and operations in any order, under any policies: every slot holds what it must, and every output is that
of a request that was served alone.

K and V are a model here: a slot's value depends on the value of the slot before it, read through the block table as a
kernel would, and so on every token before. A stale hash, a lost copy or a wrong slot changes all that comes after.
"""

import json
from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pagedviz.engine.log import replay
from pagedviz.engine.log.errors import CacheError
from pagedviz.engine.log.events.base import Event
from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.engine.policies.limits import Limits
from pagedviz.engine.policies.profiles import POLICIES, PROFILES
from pagedviz.engine.requests import outputs
from tests.engine.requests.request_cases import WatchedScheduler, generated, next_token, value, values
from tests.engine.test_engine_machine import Memory

NTH = st.integers(0, 11)
TOKENS = st.lists(st.sampled_from("abc"), min_size=1, max_size=9)
SALT = st.sampled_from([None, None, "s"])
MOST_STEPS = 400  # every request finishes within so many, if nothing else holds a block


def names(kind):
    return st.sampled_from([None, None, None, *(function.__name__ for function in POLICIES[kind])])


class KVMemory(Memory):
    """What lies in each slot. A launch computes each value from the one before it, as it is read through the table."""

    def launch(self, before: Snapshot, after: Snapshot, event: Event) -> None:
        for write in event.writes:
            held = self.through(after, write.seq_id, write.position - 1) if write.position else b""
            for slot, token in zip(write.slots, write.tokens, strict=True):
                held = value(held, token)
                self.write(*divmod(slot, self.block_size), held)

    def through(self, state: Snapshot, seq_id: str, position: int) -> bytes:
        j, offset = divmod(position, self.block_size)
        return self.slots["device", state.block_tables[seq_id][j], offset]


class SchedulerMachine(RuleBasedStateMachine):
    operations = 0  # of all machines of this process

    @initialize(
        num_blocks=st.integers(4, 12),
        block_size=st.integers(2, 4),
        host_blocks=st.sampled_from([0, 2, 4, 8]),
        profile=st.sampled_from(sorted(PROFILES)),
        prefix_caching=st.booleans(),
        fork=st.booleans(),
        auto_spill=st.booleans(),
        limits=st.builds(
            Limits,
            max_num_batched_tokens=st.integers(2, 16),
            max_num_seqs=st.integers(1, 4),
            watermark=st.sampled_from([0.0, 0.0, 0.2]),
        ),
        policies=st.fixed_dictionaries({kind: names(kind) for kind in POLICIES}),
    )
    def start(self, policies, **config):
        self.begin(policies, **config)

    def begin(self, policies, **config):
        chosen = {kind: name for kind, name in policies.items() if name}
        profile = PROFILES[config["profile"]]
        publish = chosen.get("publish", profile.publish.__name__)
        if publish == "when_scheduled":
            chosen["duplicates"] = "kept"  # a scenario that asks for others is refused
        self.scheduler = WatchedScheduler(**config, **chosen)
        self.manager = self.scheduler.manager
        self.memory = KVMemory(self.manager.block_size)
        self.replayed, self.num_replayed = self.scheduler.snapshot(), 0
        self.by_hand: dict[str, list[str]] = {}  # the tokens of sequences that belong to no request
        self.num_made = 0

    def new_name(self) -> str:
        self.num_made += 1
        return f"S{self.num_made}"

    def perform(self, operation: Callable[[], None]) -> bool:
        """Do it, or see that a refusal has left everything as it was."""
        type(self).operations += 1
        self.manager.engine_step += 1
        before, reported = self.scheduler.snapshot(), len(self.scheduler.events)
        try:
            operation()
        except CacheError:
            assert self.scheduler.snapshot() == before
            assert len(self.scheduler.events) == reported
            return False
        self.follow()
        return True

    def follow(self) -> None:
        """Read what happened as it would be read from a file, replay it, and do it to the memory."""
        for event in self.scheduler.events[self.num_replayed :]:
            read_back = Event.from_json(json.loads(json.dumps(event.to_json())))
            assert read_back == event
            assert "{" not in event.sentence
            before, self.replayed = self.replayed, replay.apply(self.replayed, read_back)
            if event.kind in ("TokenWritten", "TokensWritten", "BatchWritten"):
                self.memory.launch(before, self.replayed, read_back)
            else:
                self.memory.apply(read_back)
        self.num_replayed = len(self.scheduler.events)

    @precondition(lambda self: len(self.scheduler.waiting) < 4)
    @rule(tokens=TOKENS, num_tokens=st.integers(1, 8), priority=st.integers(-1, 1), salt=SALT)
    def submit(self, tokens, num_tokens, priority, salt):
        name = self.new_name()
        self.perform(lambda: self.scheduler.submit(name, tokens, num_tokens, priority=priority, salt=salt))

    @precondition(lambda self: self.scheduler.has_work)
    @rule(num_steps=st.integers(1, 4))
    def steps(self, num_steps):
        for _ in range(num_steps):
            if self.scheduler.has_work:
                self.step()

    def step(self) -> bool:
        """Did the step compute anything?"""
        assert self.perform(self.scheduler.schedule)
        scheduled = dict(self.scheduler.scheduled)
        assert self.perform(self.scheduler.write)
        state = self.scheduler.snapshot()
        said = {s: (next_token(self.memory.read(state, s)[-1]),) for s in outputs.due(self.scheduler)}
        assert self.perform(lambda: outputs.sampled(self.scheduler, said))
        return bool(scheduled)

    @precondition(lambda self: self.scheduler.has_work)
    @rule(nth=NTH)
    def abort(self, nth):
        queued = [*self.scheduler.running, *self.scheduler.swapped, *self.scheduler.waiting]
        assert self.perform(lambda: self.scheduler.abort(queued[nth % len(queued)]))

    @precondition(lambda self: len(self.by_hand) < 2)
    @rule(tokens=TOKENS, salt=SALT)
    def add(self, tokens, salt):
        name = self.new_name()
        if self.perform(lambda: self.manager.add(name, tokens, salt)):
            self.by_hand[name] = list(tokens)

    @precondition(lambda self: self.by_hand)
    @rule(nth=NTH, tokens=TOKENS)
    def append(self, nth, tokens):
        name = list(self.by_hand)[nth % len(self.by_hand)]
        if self.perform(lambda: self.manager.append(name, tokens)):
            self.by_hand[name] += tokens

    @precondition(lambda self: len(self.by_hand) < 3 and self.manager.sequences)
    @rule(nth=NTH)
    def fork(self, nth):
        parent, name = list(self.manager.sequences)[nth % len(self.manager.sequences)], self.new_name()
        if self.perform(lambda: self.manager.fork(parent, name)):
            self.by_hand[name] = list(self.manager.sequences[parent].tokens)

    @precondition(lambda self: self.by_hand)
    @rule(nth=NTH, operation=st.sampled_from(["free", "free", "spill", "reload"]))
    def by_hand_only(self, nth, operation):
        name = list(self.by_hand)[nth % len(self.by_hand)]
        if self.perform(lambda: getattr(self.manager, operation)(name)) and operation == "free":
            del self.by_hand[name]

    @precondition(lambda self: not self.manager.sequences)
    @rule()
    def reset(self):
        assert self.perform(self.manager.reset_prefix_cache)

    @invariant()
    def the_log_gives_the_state_and_every_slot_holds_what_it_must(self):
        if not hasattr(self, "scheduler"):
            return
        state = self.scheduler.snapshot()
        assert self.replayed == state
        for seq_id, tokens in state.tokens.items():
            assert self.memory.read(state, seq_id) == values(tokens)
        assert {s: list(state.tokens[s]) for s in self.by_hand} == self.by_hand

    @invariant()
    def outputs_are_those_of_a_request_that_nobody_disturbed(self):
        if not hasattr(self, "scheduler"):
            return
        for request in self.scheduler.requests.values():
            assert request.output == generated(request.prompt, len(request.output))

    def teardown(self):
        """If nothing else is in the pool, every request finishes, and no block stays in use."""
        if not hasattr(self, "scheduler"):
            return
        for name in list(self.by_hand):
            assert self.perform(lambda name=name: self.manager.free(name))
        aborted = {event.seq_id for event in self.scheduler.events if event.kind == "RequestAborted"}
        for _ in range(MOST_STEPS):
            if not self.scheduler.has_work:
                break
            # A request that preempts itself ends the step, even if it is the first running one.
            assert self.step() or self.scheduler.preempted
        state = self.scheduler.snapshot()
        assert not self.scheduler.has_work
        assert all(not r.outputs_left for s, r in self.scheduler.requests.items() if s not in aborted)
        assert state.ref_counts == state.host_ref_counts == {}
        assert self.manager.state.pending == set()
        assert sorted(state.free_blocks) == list(range(self.manager.profile.null_block, state.num_blocks))
        assert sorted(state.host_free_blocks) == list(range(state.host_blocks))


SchedulerMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestSchedulerMachine = SchedulerMachine.TestCase
