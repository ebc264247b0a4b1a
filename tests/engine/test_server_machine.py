"""The whole server in any order: windows and groups, drafts, samples and beams, a host tier with transfers that fail.

As in the scheduler's machine a slot's value depends on every token before it, and what lies in each slot, device block
and host chunk is followed by the events alone. Every output must be that of a request that was served alone.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from pagedviz.engine.blocks import hashing
from pagedviz.engine.policies.limits import Limits, Speculation
from pagedviz.engine.policies.profiles import POLICIES, PROFILES
from pagedviz.engine.requests import outputs
from tests.engine.requests.request_cases import generated, next_token, value, values
from tests.engine.test_scheduler_machine import MOST_STEPS, NTH, SALT, TOKENS, KVMemory, SchedulerMachine, names

WINDOWS = [(None,), (None,), (None,), (1,), (3,), (6,), (None, 3), (None, 5, 2), (4, 7)]


class ServerMemory(KVMemory):
    """Also what lies in the blocks of every group, and in the host's chunks."""

    def launch(self, before, after, event):
        for write in event.writes:
            row = values(list(after.tokens[write.seq_id]))
            for group, tables in enumerate(after.all_tables):
                for k, position in enumerate(range(write.position, write.position + len(write.tokens))):
                    held = row[position]
                    # Where nothing is out of sight, as a kernel would: from the slot before, through the table.
                    if group == 0 and after.windows[0] is None and position:
                        held = value(self.through(after, write.seq_id, position - 1), write.tokens[k])
                    j, offset = divmod(position, self.block_size)
                    self.write(tables[write.seq_id][j], offset, held + bytes([group]) if group else held)

    def apply(self, event):
        match event.kind:
            case "BlockOutOfWindow" if event.queue_index is not None and not event.cached:
                self.take("device", event.block)
            case "DraftsVerified":
                for slot in event.slots:
                    del self.slots["device", *divmod(slot, self.block_size)]
            case "TierStoreFinished":
                for block, chunk in zip(event.device_blocks, event.chunks, strict=True):
                    self.put("chunk", chunk, self.at("device", block))
            case "TierLoadFinished":
                for block, chunk in zip(event.device_blocks, event.chunks, strict=True):
                    self.put("device", block, self.at("chunk", chunk))
                for chunk in event.freed:
                    self.take("chunk", chunk)
            case "TierLoadFailed" | "TierLoadCancelled":
                for chunk in event.freed:
                    self.take("chunk", chunk)
            case "TierEvicted":
                self.take("chunk", event.chunk)
            case _:
                super().apply(event)

    def differs(self, state, seq_id):
        """The entries of a sequence that do not hold what its tokens say, by group."""
        expected, size = values(list(state.tokens[seq_id])), self.block_size
        for group, tables in enumerate(state.all_tables):
            for j, block in enumerate(tables[seq_id]):
                where = ("device", block) if block is not None else ("host", state.host_tables[seq_id][j])
                own = [held + bytes([group]) if group else held for held in expected[j * size : (j + 1) * size]]
                if where != ("device", state.null_block) and self.at(*where)[: len(own)] != own:
                    yield group, j


def drawn(seq_id, tokens):
    """What the model draws for one of several samples."""
    return next_token(value(values(tokens)[-1], seq_id))


def candidates(tokens):
    last = values(tokens)[-1]
    return sorted(((letter, -1.0 - last[i] / 100) for i, letter in enumerate("abc")), key=lambda c: -c[1])


def search(prompt, num_tokens, num_beams):
    alive = [([], 0.0)]
    for _ in range(num_tokens):
        grown = [([*out, t], score + p) for out, score in alive for t, p in candidates([*prompt, *out])]
        alive = sorted(grown, key=lambda beam: -beam[1])[:num_beams]
    return [out for out, _ in alive]


class ServerMachine(SchedulerMachine):
    operations = 0

    @initialize(
        num_blocks=st.integers(5, 16),
        block_size=st.integers(2, 4),
        host_blocks=st.sampled_from([0, 4, 8]),
        profile=st.sampled_from(sorted(PROFILES)),
        prefix_caching=st.booleans(),
        fork=st.booleans(),
        auto_spill=st.booleans(),
        windows=st.sampled_from(WINDOWS),
        host_chunks=st.sampled_from([0, 2, 5]),
        speculation=st.builds(Speculation, num_drafts=st.integers(0, 3), load_limit=st.integers(1, 5)),
        limits=st.builds(
            Limits,
            max_num_batched_tokens=st.integers(2, 16),
            max_num_seqs=st.integers(1, 6),
            watermark=st.sampled_from([0.0, 0.0, 0.2]),
        ),
        policies=st.fixed_dictionaries({kind: names(kind) for kind in POLICIES}),
    )
    def start(self, policies, windows, host_chunks, speculation, **config):
        several = len(windows) > 1
        if several and config["profile"] in ("vllm-v0", "nano-vllm"):
            config["profile"] = "vllm-v1"
        if several:
            config |= {"fork": False, "auto_spill": False}
            policies = policies | {"preemption": None}
        if windows != (None,) or not config["prefix_caching"]:
            host_chunks = 0
        config |= {"windows": windows, "host_chunks": host_chunks, "speculation": speculation}
        SchedulerMachine.begin(self, policies, **config)
        self.memory = ServerMemory(self.manager.block_size)

    # What the parent's machine decides is decided here.
    def step(self):
        scheduler = self.scheduler
        assert self.perform(scheduler.schedule)
        moved = bool(scheduler.scheduled)
        assert self.perform(scheduler.write)
        assert self.perform(lambda: outputs.fork(scheduler))
        said, best = {}, {}
        for seq_id in outputs.due(scheduler):
            request = scheduler.request_of(seq_id)
            known = [*request.prompt, *request.outputs[seq_id]]
            if request.beams > 1:
                best.setdefault(request.seq_id, {})[seq_id] = candidates(known)
            elif request.samples > 1:
                said[seq_id] = (drawn(seq_id, known),)
            else:
                said[seq_id] = self.answers(seq_id)
        assert self.perform(lambda: outputs.sampled(scheduler, said))
        for name, continuations in best.items():
            assert self.perform(lambda name=name, c=continuations: outputs.expand(scheduler, name, c))
        for seq_id in said:
            if seq_id in scheduler.running and scheduler.num_drafts(seq_id) > 0:
                guess = self.guess(scheduler.requests[seq_id].tokens, scheduler.num_drafts(seq_id))
                assert self.perform(lambda s=seq_id, g=guess: scheduler.propose(s, g, []))
        return moved

    def answers(self, seq_id):
        """The model's own tokens behind the newest verified one: the accepted drafts, and one more token."""
        seq = self.manager.sequences[seq_id]
        position, said = seq.seq_len - seq.unverified, []
        while True:
            said += generated(seq.tokens[:position], 1)
            if seq.tokens[position : position + 1] != said[-1:]:
                return tuple(said)
            position += 1

    def guess(self, tokens, k):
        """Right for a while, then wrong."""
        right = generated(list(tokens), k)
        wrong_from = len(tokens) % (k + 1)
        return [token if i < wrong_from else "?" for i, token in enumerate(right)]

    @precondition(lambda self: len(self.scheduler.waiting) < 4)
    @rule(tokens=TOKENS, num_tokens=st.integers(1, 6), width=st.integers(2, 4), beams=st.booleans())
    def submit_several(self, tokens, num_tokens, width, beams):
        several = {"beams" if beams else "samples": width}
        name = self.new_name()
        self.perform(lambda: self.scheduler.submit(name, tokens, num_tokens, **several))

    @precondition(lambda self: self.scheduler.requests and len(self.scheduler.waiting) < 4)
    @rule(nth=NTH, tokens=TOKENS, num_tokens=st.integers(1, 4))
    def submit_what_begins_alike(self, nth, tokens, num_tokens):
        other = list(self.scheduler.requests.values())[nth % len(self.scheduler.requests)]
        name = self.new_name()
        prompt = [*other.prompt, *tokens]
        self.perform(lambda: self.scheduler.submit(name, prompt, num_tokens, salt=other.salt))

    @precondition(lambda self: self.manager.state.prefix_caching and self.manager.pool.free_blocks)
    @rule()
    def sweep_the_free_queue(self):
        self.sweep()

    def sweep(self):
        """Hand out every free block for other tokens, so that what was cached there is gone from the device."""
        name, room = self.new_name(), len(self.manager.pool.free_blocks) // len(self.manager.windows)
        tokens = [f"{name} {i}" for i in range(room * self.manager.block_size)]
        if self.perform(lambda: self.manager.add(name, tokens)):
            assert self.perform(lambda: self.manager.free(name))

    @precondition(lambda self: self.by_hand)
    @rule(nth=NTH, drafts=st.lists(st.sampled_from("abc?"), min_size=1, max_size=4))
    def draft(self, nth, drafts):
        name = list(self.by_hand)[nth % len(self.by_hand)]
        token = generated(self.by_hand[name], 1)[0]
        self.perform(lambda: self.manager.draft(name, token, drafts))

    @precondition(lambda self: self.drafted())
    @rule(nth=NTH)
    def verify(self, nth):
        name = self.drafted()[nth % len(self.drafted())]
        token = self.manager.sequences[name].scheduled[0]
        assert self.perform(lambda: self.manager.write([name]))
        said = self.answers(name)
        assert self.perform(lambda: self.manager.verify(name, len(said) - 1))
        self.by_hand[name] += [token, *said[:-1]]

    def drafted(self):
        """Sequences made by hand that have drafts to verify."""
        return [name for name in self.by_hand if self.manager.sequences[name].drafts]

    @precondition(lambda self: self.manager.copies and self.manager.sequences)
    @rule(nth=NTH)
    def store(self, nth):
        name = list(self.manager.sequences)[nth % len(self.manager.sequences)]
        self.perform(lambda: self.manager.store(name))

    @precondition(lambda self: self.manager.copies)
    @rule(tokens=TOKENS, salt=SALT, nth=NTH)
    def load(self, tokens, salt, nth):
        known = [r.tokens for r in self.scheduler.requests.values()]
        prompt = known[nth % len(known)] if known and nth % 2 else tokens
        self.perform(lambda: self.manager.load([*prompt, "x"], salt))

    @precondition(lambda self: self.manager.is_transferring)
    @rule(nth=NTH, how=st.sampled_from(["finish", "fail", "cancel"]))
    def end_transfer(self, nth, how):
        self.end_one(nth, how)

    def end_one(self, nth, how):
        transfers = self.manager.copies.tier.transfers
        assert self.perform(lambda: self.manager.end_transfer(transfers[nth % len(transfers)].transfer_id, how))

    @precondition(lambda self: not self.manager.sequences and not self.manager.is_transferring)
    @rule()
    def reset(self):
        assert self.perform(self.manager.reset_prefix_cache)

    @invariant()
    def the_log_gives_the_state_and_every_slot_holds_what_it_must(self):
        if not hasattr(self, "scheduler"):
            return
        state = self.scheduler.snapshot()
        assert self.replayed == state
        for seq_id in state.tokens:
            assert list(self.memory.differs(state, seq_id)) == []
        assert {s: list(state.tokens[s]) for s in self.by_hand} == self.by_hand
        if state.tier:
            for held in state.tier.chunks.items():
                self.chunk_holds_what_it_must(*held)

    def chunk_holds_what_it_must(self, chunk, held):
        content = self.memory.at("chunk", chunk)
        if held.state == "pending":
            assert content == []
        if held.state in ("ready", "loading"):
            link, tokens = self.manager.host_tier.host_links[held.block_hash], []
            while link:
                tokens[:0], link = link.tokens, link.parent
            assert content == values(tokens)[-self.manager.block_size :]

    @invariant()
    def outputs_are_those_of_a_request_that_nobody_disturbed(self):
        if not hasattr(self, "scheduler"):
            return
        for request in self.scheduler.requests.values():
            for seq_id, output in request.outputs.items():
                if request.samples > 1:
                    known = list(request.prompt)
                    for _ in output:
                        known.append(drawn(seq_id, known))
                    assert output == known[len(request.prompt) :]
                elif request.beams == 1:
                    assert output == generated(request.prompt, len(output))
            if request.beams > 1:
                expected = search(request.prompt, len(request.output), request.beams)
                assert list(request.outputs.values()) == expected or not request.output

    def teardown(self):
        if not hasattr(self, "scheduler"):
            return
        assert self.perform(self.manager.finish_transfers)
        for name in list(self.by_hand):
            assert self.perform(lambda name=name: self.manager.free(name))
        aborted = {event.seq_id for event in self.scheduler.events if event.kind == "RequestAborted"}
        idle = 0
        for _ in range(MOST_STEPS):
            if not self.scheduler.has_work:
                break
            # A step may wait for a load, or for what held blocks; two in a row may not.
            idle = 0 if self.step() else idle + 1
            assert idle < 3
        assert self.perform(self.manager.finish_transfers)
        state = self.scheduler.snapshot()
        assert not self.scheduler.has_work
        assert all(not r.outputs_left for s, r in self.scheduler.requests.items() if s not in aborted)
        assert state.ref_counts == state.host_ref_counts == {}
        assert state.pinned == ()
        assert self.manager.state.pending == set()
        assert sorted(state.free_blocks) == [b for b in range(state.num_blocks) if b != state.null_block]
        assert sorted(state.host_free_blocks) == list(range(state.host_blocks))


class TieredMachine(ServerMachine):
    """The same with a host tier, and a device so small that most of what was cached is soon on the host alone."""

    operations = 0

    @initialize(
        num_blocks=st.integers(5, 8),
        block_size=st.integers(1, 2),
        profile=st.sampled_from(["vllm-v1", "vllm-v1", "sglang", "vllm-v0"]),
        host_chunks=st.integers(2, 9),
        limits=st.builds(Limits, max_num_batched_tokens=st.integers(3, 16), max_num_seqs=st.integers(1, 4)),
        policies=st.fixed_dictionaries({"host_write": names("host_write"), "free_order": names("free_order")}),
        fork=st.booleans(),
    )
    def start(self, policies, **config):
        SchedulerMachine.begin(self, policies, host_blocks=4, prefix_caching=True, auto_spill=False, **config)
        self.memory = ServerMemory(self.manager.block_size)

    @rule(tokens=TOKENS, write=st.sampled_from(["finish", "finish", "finish", "fail", "cancel"]), nth=NTH)
    def leave_something_on_the_host(self, tokens, write, nth):
        name = self.new_name()
        if not self.perform(lambda: self.manager.add(name, tokens)):
            return
        self.perform(lambda: self.manager.store(name))
        assert self.perform(lambda: self.manager.free(name))
        if self.manager.is_transferring:
            self.end_one(nth, write)
        self.sweep()

    @rule(nth=NTH, how=st.sampled_from(["finish", "fail", "cancel"]), when=st.sampled_from(["now", "later"]))
    def fetch_something(self, nth, how, when):
        links = list(self.manager.host_tier.host_links.values())
        if not links:
            return
        chain = hashing.chain(links[nth % len(links)])
        prompt = [token for link in chain for token in link.tokens]
        if self.perform(lambda: self.manager.load([*prompt, "x"], chain[0].salt)) and when == "now":
            self.end_one(-1, how)

    @rule(nth=NTH, num_tokens=st.integers(1, 4))
    def submit_what_the_host_has(self, nth, num_tokens):
        links = list(self.manager.host_tier.host_links.values())
        if links and len(self.scheduler.waiting) < 4:
            chain = hashing.chain(links[nth % len(links)])
            prompt = [token for link in chain for token in link.tokens]
            name, salt = self.new_name(), chain[0].salt
            self.perform(lambda: self.scheduler.submit(name, [*prompt, "x"], num_tokens, salt=salt))


ServerMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestServerMachine = ServerMachine.TestCase
TieredMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestTieredMachine = TieredMachine.TestCase
