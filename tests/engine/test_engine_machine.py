"""Any operations in any order: the manager agrees with a plain dictionary, and every slot with a plain memory.

The memory knows nothing of tables or counts: it does what the events say to the slots they name. Reading it through the
tables must give each sequence's tokens.
"""

import json
from collections import defaultdict
from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pagedviz.engine.log import replay
from pagedviz.engine.log.errors import CacheError
from pagedviz.engine.log.events.base import Event
from pagedviz.engine.log.snapshot import Snapshot
from tests.engine.engine_cases import Watched

NTH = st.integers(0, 11)  # which of the sequences
NEW = st.sampled_from(["new", "new", "new", "taken"])  # what a sequence is to be called
TOKEN = st.integers(0, 9) | st.sampled_from(["w", "7", "🙂"])
PROMPT, SUFFIX = st.lists(TOKEN, max_size=7), st.lists(TOKEN, min_size=1, max_size=3)


class Memory:
    """What lies in each slot, by (memory, block, offset). What a cached block holds stays until its hash goes."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.slots: dict[tuple[str, int, int], object] = {}

    def apply(self, event: Event) -> None:
        match event.kind:
            case "TokenWritten" | "TokensWritten" | "BatchWritten":
                for write in event.writes:
                    for slot, token in zip(write.slots, write.tokens, strict=True):
                        self.write(*divmod(slot, self.block_size), token)
            case "BlockCopied":
                self.put("device", event.target, self.at("device", event.source)[: event.num_slots])
            case "BlockSpilled":
                self.put("host", event.host_block, self.take("device", event.block))
            case "BlockReloaded":
                self.put("device", event.block, self.take("host", event.host_block))
            case "BlockFreed" if not event.cached:
                self.take(event.where, event.block)
            case "BlockEvicted" if event.ref_count == 0:
                self.take("device", event.block)
            case "BlockCollapsed":
                assert self.take("device", event.source) == self.at("device", event.target)

    def write(self, block: int, offset: int, token: object) -> None:
        assert ("device", block, offset) not in self.slots
        self.slots["device", block, offset] = token

    def at(self, where: str, block: int) -> list[object]:
        filled = sorted(offset for w, b, offset in self.slots if (w, b) == (where, block))
        return [self.slots[where, block, offset] for offset in filled]

    def take(self, where: str, block: int) -> list[object]:
        tokens = self.at(where, block)
        for offset in range(len(tokens)):
            del self.slots[where, block, offset]
        return tokens

    def put(self, where: str, block: int, tokens: list[object]) -> None:
        assert self.at(where, block) == []
        self.slots |= {(where, block, offset): token for offset, token in enumerate(tokens)}

    def read(self, state: Snapshot, seq_id: str) -> list[object]:
        rows = zip(state.block_tables[seq_id], state.host_tables[seq_id], strict=True)
        places = [("device", block) if block is not None else ("host", host) for block, host in rows]
        tokens = [token for place in places for token in self.at(*place)[: state.block_size]]
        return tokens[: state.seq_len(seq_id)]


def sharing(state: Snapshot) -> set[frozenset[tuple[str, int]]]:
    """Which entries name the same block, wherever it is."""
    named: dict[tuple[str, int | None], set[tuple[str, int]]] = defaultdict(set)
    for where, tables in (("device", state.block_tables), ("host", state.host_tables)):
        for seq_id, row in tables.items():
            for j, block in enumerate(row):
                if block is not None:
                    named[where, block].add((seq_id, j))
    return {frozenset(entries) for entries in named.values()}


class CacheMachine(RuleBasedStateMachine):
    """Without prefix caching. `CachingMachine` below goes the same ways with it."""

    prefix_caching = False
    operations = 0  # of all machines of this process

    @initialize(
        num_blocks=st.sampled_from([5, 4, 3, 6, 8, 12]),
        block_size=st.sampled_from([2, 3, 4, 1]),
        host_blocks=st.integers(0, 6),
        profile=st.sampled_from(["vllm-v0", "vllm-v0", "vllm-v1", "nano-vllm"]),
        fork=st.booleans(),
        auto_spill=st.booleans(),
        random=st.randoms(use_true_random=False),
    )
    def start(self, random, profile, num_blocks, **settings):
        free_blocks = list(range(profile == "vllm-v1", num_blocks))
        random.shuffle(free_blocks)
        settings |= {"profile": profile, "free_blocks": free_blocks, "prefix_caching": self.prefix_caching}
        self.cache = Watched(num_blocks, **settings)
        self.tokens, self.salts = {}, {}
        self.findable = {}  # by cached block, in the order in which they were: salt, and all tokens up to its last
        self.num_made = 0
        self.memory = Memory(self.cache.block_size)
        self.replayed = self.cache.snapshot()
        self.num_replayed = 0
        for operation in ("free", "spill", "reload"):
            assert not self.perform(lambda operation=operation: getattr(self.cache, operation)("unknown"))

    def one_of(self, nth: int) -> str:
        return list(self.tokens)[nth % len(self.tokens)]

    def name(self, new: str, nth: int) -> str:
        self.num_made += 1
        return self.one_of(nth) if new == "taken" and self.tokens else f"S{self.num_made}"

    def perform(self, operation: Callable[[], None]) -> bool:
        """Do it, or see that a refusal has left everything as it was."""
        type(self).operations += 1
        self.cache.engine_step += 1
        before, reported = self.cache.snapshot(), len(self.cache.events)
        try:
            operation()
            return True
        except CacheError:
            assert self.cache.snapshot() == before
            assert len(self.cache.events) == reported
            return False

    @precondition(lambda self: len(self.tokens) < 4 and (self.cache.free_blocks or self.cache.auto_spill))
    @rule(new=NEW, nth=NTH, tokens=PROMPT)
    def add(self, new, nth, tokens):
        self.add_prompt(new, nth, tokens, None)

    def add_prompt(self, new, nth, tokens, salt):
        seq_id, state = self.name(new, nth), self.cache.snapshot()
        hits = self.hits(tokens, salt)
        needed = -(-len(tokens) // state.block_size) - sum(block in state.ref_counts for block in hits)
        done = self.perform(lambda: self.cache.add(seq_id, tokens, salt))
        if not self.cache.auto_spill:
            assert done == (seq_id not in self.tokens and bool(tokens) and needed <= len(state.free_blocks))
        if done:
            self.tokens[seq_id] = list(tokens)
            self.salts[seq_id] = salt
            self.written_at_once_at_the_end(tokens[len(hits) * state.block_size :])
            assert self.cache.snapshot().block_tables[seq_id][: len(hits)] == tuple(hits)

    def hits(self, tokens, salt):
        """The cached blocks that a prompt must hit, from the plain record of what has been cached."""
        size, hits = self.cache.block_size, []
        for end in range(size, len(tokens), size):
            same = [block for block, content in self.findable.items() if content == (salt, tokens[:end])]
            if not same:
                break
            hits.append(same[0])
        return hits

    def written_at_once_at_the_end(self, tokens: list[object]) -> None:
        """The operation's last event is its only write, and it writes all of its tokens."""
        of_this_step = [e for e in self.cache.events if getattr(e, "engine_step", None) == self.cache.engine_step]
        after = {event.kind for event in self.cache.events[self.cache.events.index(of_this_step[0]) + 1 :]}
        assert after <= ({"BlockCached", "BlockEvicted", "BlockCollapsed"} if self.prefix_caching else set())
        assert len(of_this_step) == 1
        assert of_this_step[0].kind == ("TokenWritten" if len(tokens) == 1 else "TokensWritten")
        assert of_this_step[0].writes[0].tokens == tuple(tokens)

    @precondition(lambda self: self.tokens)
    @rule(nth=NTH, tokens=SUFFIX)
    def append(self, nth, tokens):
        self.append_to(self.one_of(nth), tokens)

    @precondition(lambda self: self.shared_tails())
    @rule(nth=NTH, tokens=SUFFIX)
    def append_to_a_shared_tail(self, nth, tokens):
        shared = self.shared_tails()
        self.append_to(shared[nth % len(shared)], tokens)

    def append_to(self, seq_id: str, tokens: list[object]) -> None:
        state = self.cache.snapshot()
        copies = seq_id in self.shared_tails()
        done = self.perform(lambda: self.cache.append(seq_id, tokens))
        if not self.cache.auto_spill:
            needed = -(-(state.seq_len(seq_id) + len(tokens)) // state.block_size)
            needed += copies - len(state.block_tables[seq_id])
            assert done == (state.is_resident(seq_id) and needed <= len(state.free_blocks))
        if done:
            self.tokens[seq_id] += tokens
            self.written_at_once_at_the_end(tokens)

    def shared_tails(self) -> list[str]:
        """Resident sequences with a last block that is neither full nor theirs alone."""
        state = self.cache.snapshot()
        tails = {seq_id: row[-1] for seq_id, row in state.block_tables.items() if state.is_resident(seq_id)}
        return [s for s, tail in tails.items() if state.ref_counts[tail] > 1 and state.seq_len(s) % state.block_size]

    @precondition(lambda self: 0 < len(self.tokens) < 6)
    @rule(nth=NTH, new=NEW)
    def fork(self, nth, new):
        parent, seq_id, free = self.one_of(nth), self.name(new, nth + 1), self.cache.free_blocks
        done = self.perform(lambda: self.cache.fork(parent, seq_id))
        assert done == (seq_id not in self.tokens and self.cache.profile.fork)
        assert self.cache.free_blocks == free
        if done:
            self.tokens[seq_id] = list(self.tokens[parent])
            self.salts[seq_id] = self.salts[parent]

    @precondition(lambda self: len(self.tokens) > 1)
    @rule(nth=NTH)
    def free(self, nth):
        seq_id = self.one_of(nth)
        assert self.perform(lambda: self.cache.free(seq_id))
        del self.tokens[seq_id]

    @precondition(lambda self: self.tokens)
    @rule(nth=NTH)
    def spill(self, nth):
        seq_id, before = self.one_of(nth), self.cache.snapshot()
        done = self.perform(lambda: self.cache.spill(seq_id))
        stay = {s for s in self.tokens if s != seq_id and before.is_resident(s)}
        kept = {block for s in stay for block in before.block_tables[s]}
        moving = set(before.block_tables[seq_id]) - kept - {None}
        assert done == (0 < len(moving) <= len(before.host_free_blocks))
        assert set(before.ref_counts) - set(self.cache.snapshot().ref_counts) == (moving if done else set())
        assert sharing(self.cache.snapshot()) == sharing(before)

    @precondition(lambda self: self.cache.snapshot().host_ref_counts)
    @rule(nth=NTH)
    def reload(self, nth):
        spilled = [s for s in self.tokens if not self.cache.snapshot().is_resident(s)]
        seq_id, before = spilled[nth % len(spilled)], self.cache.snapshot()
        done = self.perform(lambda: self.cache.reload(seq_id))
        if not self.cache.auto_spill:
            assert done == (before.block_tables[seq_id].count(None) <= len(before.free_blocks))
        if done:
            assert self.cache.snapshot().is_resident(seq_id)
        assert sharing(self.cache.snapshot()) == sharing(before)

    @invariant()
    def tokens_are_those_of_the_dictionary(self):
        assert {seq_id: list(tokens) for seq_id, tokens in self.cache.snapshot().tokens.items()} == self.tokens

    @invariant()
    def the_log_gives_the_state_and_every_slot(self):
        for event in self.cache.events[self.num_replayed :]:
            read_back = Event.from_json(json.loads(json.dumps(event.to_json())))
            assert read_back == event
            assert "{" not in event.sentence
            self.replayed = replay.apply(self.replayed, read_back)
            self.memory.apply(read_back)
            if event.kind == "BlockCached":
                end = (event.logical_block + 1) * self.cache.block_size
                tokens = self.tokens[event.seq_id][:end]  # the launch that writes them may be the next event
                self.findable[event.block] = (self.salts.get(event.seq_id), tokens)
            if event.kind == "BlockEvicted":
                del self.findable[event.block]
        self.num_replayed = len(self.cache.events)
        state = self.cache.snapshot()
        assert self.replayed == state
        assert set(state.cached) == set(self.findable)
        for block, (_, tokens) in self.findable.items():
            assert self.memory.at("device", block) == tokens[-state.block_size :]
        assert {seq_id: self.memory.read(state, seq_id) for seq_id in self.tokens} == self.tokens

    def teardown(self):
        """Whatever happened, all blocks are free once all sequences are."""
        if not hasattr(self, "cache"):
            return
        for seq_id in list(self.tokens):
            self.cache.free(seq_id)
        state = self.cache.snapshot()
        assert state.ref_counts == state.host_ref_counts == {}
        assert sorted(state.free_blocks) == list(range(self.cache.profile.null_block, state.num_blocks))
        assert sorted(state.host_free_blocks) == list(range(state.host_blocks))


class CachingMachine(CacheMachine):
    """With prefix caching: three letters make equal prefixes common."""

    prefix_caching = True

    @precondition(lambda self: len(self.tokens) < 4)
    @rule(
        new=NEW, nth=NTH, tokens=st.lists(st.sampled_from("abc"), max_size=9), salt=st.sampled_from([None, None, "s"])
    )
    def add_letters(self, new, nth, tokens, salt):
        self.add_prompt(new, nth, tokens, salt)

    @precondition(lambda self: self.tokens)
    @rule(nth=NTH, tokens=st.lists(st.sampled_from("abc"), min_size=1, max_size=3))
    def append_letters(self, nth, tokens):
        self.append_to(self.one_of(nth), tokens)

    @rule()
    def reset(self):
        assert self.perform(self.cache.reset_prefix_cache) == (not self.tokens)


CacheMachine.TestCase.settings = settings(max_examples=70, stateful_step_count=50, deadline=None)
TestCacheMachine = CacheMachine.TestCase
CachingMachine.TestCase.settings = settings(max_examples=70, stateful_step_count=50, deadline=None)
TestCachingMachine = CachingMachine.TestCase
