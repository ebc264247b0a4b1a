"""Any stores and loads in any order: the host tier agrees with a plain list, and every load brings what was stored.

Few chunks and few keys with equal hashes, so that stores meet what is there, pending, loading or has failed. Blocks
and chunks hold their contents here. A copy happens when its transfer finishes, the latest moment at which it may: what
was reused too early gives itself away.
"""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pagedviz.engine.log.errors import BlockInTransfer, NotReady, TooFewChunks, UnknownTransfer
from pagedviz.engine.log.replay import host_tier
from pagedviz.engine.policies.host_writes import Offer
from pagedviz.engine.policies.profiles import POLICIES
from tests.engine.host_tier.tier_cases import WatchedTier
from tests.engine.radix.radix_cases import refused

NUM_BLOCKS = 10
GARBAGE = "?"
WHICH = st.integers(0, 11)


@dataclass(frozen=True)
class Key:
    """A key is its letter; its hash is one of three."""

    letter: str

    def __hash__(self) -> int:
        return ord(self.letter) % 3


KEYS = st.lists(st.sampled_from("abcdefghijk").map(Key), max_size=5, unique=True)
PICKS = st.lists(WHICH, min_size=1, max_size=5)


@dataclass(eq=False)
class Copy:
    """What the list knows of a block on the host."""

    key: Key
    chunk: int
    state: str = "pending"
    loads: set[int] = field(default_factory=set)


class TierMachine(RuleBasedStateMachine):
    operations = 0  # of all machines of this process

    @initialize(num_chunks=st.integers(2, 8), policy=st.sampled_from(POLICIES["host_write"]), stored=KEYS)
    def start(self, num_chunks, policy, stored):
        self.tier = WatchedTier(num_chunks)
        self.policy = policy
        self.copies: list[Copy] = []  # the least recently used first
        self.lost: list[Copy] = []  # what a load could not read, and another still does
        self.unused, self.freed = list(range(num_chunks)), []
        self.transfers: dict[int, tuple[str, dict[Key, int], list[Copy]]] = {}
        self.device: dict[int, Key | str] = dict.fromkeys(range(NUM_BLOCKS), GARBAGE)
        self.host: dict[int, Key | str] = dict.fromkeys(range(num_chunks), GARBAGE)
        self.hit_counts: dict[int, int] = {}
        self.replayed, self.num_replayed = self.tier.snapshot(), 0
        for block, key in enumerate(stored[:num_chunks]):
            self.device[block], self.hit_counts[block] = key, 1
            self.store({key: block})
            self.end(block + 1, "finish")

    # --- what the list says ---

    def find(self, key: Key) -> Copy | None:
        return next((copy for copy in self.copies if copy.key == key), None)

    def is_hit(self, key: Key) -> bool:
        copy = self.find(key)
        return copy is not None and copy.state == "ready"

    def held(self) -> set[int]:
        return {block for _, blocks, _ in self.transfers.values() for block in blocks.values()}

    def idle_blocks(self) -> list[int]:
        return [block for block in self.device if block not in self.tier.held_device_blocks]

    def some_keys(self, picks: list[int]) -> list[Key]:
        """Mostly keys on the host, each once."""
        keys = [*(copy.key for copy in self.copies), Key("a"), Key("k")]
        return list(dict.fromkeys(keys[pick % len(keys)] for pick in picks))

    # --- what the rules are made of ---

    def store(self, blocks: dict[Key, int]) -> None:
        new = {key: block for key, block in blocks.items() if self.find(key) is None}
        if not new:
            assert self.tier.begin_store(blocks) is None
            return
        taken = next((block for block in new.values() if block in self.held()), None)
        if taken is not None:
            with refused(self.tier, BlockInTransfer, block=taken):
                self.tier.begin_store(blocks)
            return
        free = len(self.unused) + len(self.freed)
        idle = [copy for copy in self.copies if copy.state == "ready" and not copy.loads and copy.key not in blocks]
        if len(new) > free + len(idle):
            numbers = {"needed": len(new), "free": free, "evictable": len(idle), "total": self.tier.num_chunks}
            with refused(self.tier, TooFewChunks, **numbers):
                self.tier.begin_store(blocks)
            return
        gone = idle[: max(0, len(new) - free)]
        store = self.tier.begin_store(blocks)
        assert dict(zip(store.block_hashes, store.device_blocks, strict=True)) == new
        self.freed += [copy.chunk for copy in gone]
        stored = [Copy(key, self.unused.pop(0) if self.unused else self.freed.pop()) for key in new]
        assert store.chunks == tuple(copy.chunk for copy in stored)
        self.copies = [copy for copy in self.copies if copy not in gone] + stored
        self.transfers[store.transfer_id] = ("store", new, stored)
        self.host.update(dict.fromkeys(store.chunks, GARBAGE))

    def end(self, transfer_id: int, how: str) -> None:
        kind, blocks, copies = self.transfers.pop(transfer_id)
        for (key, block), copy in zip(blocks.items(), copies, strict=True):
            copy.loads.discard(transfer_id)
            if how == "finish":
                if kind == "store":
                    self.host[copy.chunk], copy.state = self.device[block], "ready"
                else:
                    self.device[block], self.hit_counts[block] = self.host[copy.chunk], 1
                assert self.device[block] == key
            elif copy in self.copies and (kind == "store" or how == "fail"):
                self.copies.remove(copy)
                self.lost.append(copy)
            if copy in self.lost and not copy.loads:
                self.lost.remove(copy)
                self.freed.append(copy.chunk)
        getattr(self.tier, how)(transfer_id)

    def offer(self, what: str, blocks: list[int]) -> None:
        """Store what the policy wants to be stored at this point."""
        wanted = [block for block in blocks if self.policy(Offer(what, self.hit_counts[block]))]
        self.store({self.device[block]: block for block in wanted})

    # --- rules ---

    @rule(keys=KEYS, start=WHICH)
    def compute(self, keys, start):
        """Blocks that no transfer holds get new contents. Before, the old ones are offered to the tier."""
        idle = self.idle_blocks()
        wanted = [idle[(start + i) % len(idle)] for i in range(min(len(keys), len(idle)))]
        self.offer("evicted", [block for block in wanted if block in self.hit_counts])
        filled = [block for block in wanted if block not in self.tier.held_device_blocks]
        for block, key in zip(filled, keys, strict=False):
            self.device[block], self.hit_counts[block] = key, 1
        self.offer("computed", filled)

    @precondition(lambda self: self.hit_counts)
    @rule(which=WHICH)
    def hit(self, which):
        block = list(self.hit_counts)[which % len(self.hit_counts)]
        self.hit_counts[block] += 1
        self.offer("hit", [block])

    @precondition(lambda self: self.hit_counts)
    @rule(first=WHICH, num_blocks=st.integers(1, 6))
    def store_whatever_the_policy(self, first, num_blocks):
        known = list(self.hit_counts)
        blocks = {known[(first + i) % len(known)] for i in range(num_blocks)}
        self.store({self.device[block]: block for block in blocks})

    @rule(picks=PICKS)
    def look_up(self, picks):
        keys = self.some_keys(picks)
        before = self.tier.snapshot()
        assert self.tier.longest_run(keys) == next((i for i, k in enumerate(keys) if not self.is_hit(k)), len(keys))
        assert self.tier.snapshot() == before

    @precondition(lambda self: any(copy.state == "ready" for copy in self.copies))
    @rule(picks=PICKS, start=WHICH)
    def load(self, picks, start):
        """Load what was looked up, into blocks that no transfer holds."""
        idle = self.idle_blocks()
        hits = [key for key in self.some_keys(picks) if self.is_hit(key)][: len(idle)]
        blocks = {key: idle[(start + i) % len(idle)] for i, key in enumerate(hits)}
        load = self.tier.begin_load(blocks)
        if not hits:
            assert load is None
            return
        copies = [self.find(key) for key in hits]
        assert load.chunks == tuple(copy.chunk for copy in copies)
        self.transfers[load.transfer_id] = ("load", blocks, copies)
        for copy, block in zip(copies, load.device_blocks, strict=True):
            copy.loads.add(load.transfer_id)
            self.device[block] = GARBAGE
            self.hit_counts.pop(block, None)

    @rule(picks=PICKS)
    def refuse_to_load_what_is_not_ready(self, picks):
        keys = self.some_keys(picks)
        missing = next((key for key in keys if not self.is_hit(key)), None)
        if missing is None:
            return
        state = "pending" if self.find(missing) else "absent"
        with refused(self.tier, NotReady, block_hash=missing, state=state):
            self.tier.begin_load({key: NUM_BLOCKS + i for i, key in enumerate(keys)})

    @rule(picks=PICKS)
    def touch(self, picks):
        keys = self.some_keys(picks)
        self.tier.touch(keys)
        touched = [copy for copy in map(self.find, reversed(keys)) if copy]
        self.copies = [copy for copy in self.copies if copy not in touched] + touched

    @precondition(lambda self: self.transfers)
    @rule(which=WHICH, hows=st.lists(st.sampled_from(["finish", "finish", "fail", "cancel"]), min_size=1, max_size=3))
    def end_some(self, which, hows):
        for how in hows[: len(self.transfers)]:
            transfer_id = list(self.transfers)[which % len(self.transfers)]
            self.end(transfer_id, how)
        with refused(self.tier, UnknownTransfer, transfer_id=transfer_id, known=list(self.transfers)):
            self.tier.finish(transfer_id)

    @precondition(lambda self: self.transfers and self.copies)
    @rule(which=WHICH)
    def refuse_a_block_in_transfer(self, which):
        block = sorted(self.held())[which % len(self.held())]
        with refused(self.tier, BlockInTransfer, block=block):
            self.tier.begin_load({self.copies[which % len(self.copies)].key: block})
        with refused(self.tier, BlockInTransfer, block=block):
            self.tier.begin_store({Key("z"): block})
        with refused(self.tier, BlockInTransfer, block=NUM_BLOCKS):
            self.tier.begin_store({Key("y"): NUM_BLOCKS, Key("z"): NUM_BLOCKS})

    # --- what holds ---

    @invariant()
    def the_tier_is_what_the_list_is(self):
        type(self).operations += 1
        state = self.tier.snapshot()
        assert state.recency == tuple(copy.key for copy in self.copies)
        chunks = self.tier.chunks
        for copy in self.copies:
            assert chunks[copy.key] == (copy.chunk, "loading" if copy.loads else copy.state, len(copy.loads))
            assert self.host[copy.chunk] == (GARBAGE if copy.state == "pending" else copy.key)
        assert {c for c, held in state.chunks.items() if held.state == "failed"} == {copy.chunk for copy in self.lost}
        assert state.free_chunks == (*self.unused, *reversed(self.freed))
        assert self.tier.held_device_blocks == self.held()

    @invariant()
    def the_log_gives_the_tier(self):
        for event in self.tier.events[self.num_replayed :]:
            self.replayed = host_tier.apply(self.replayed, event)
        self.num_replayed = len(self.tier.events)
        assert self.replayed == self.tier.snapshot()

    def teardown(self):
        """Whatever happened, all of it can make room once every transfer has ended."""
        if not hasattr(self, "tier"):
            return
        for i, transfer_id in enumerate(list(self.transfers)):
            self.end(transfer_id, ("finish", "fail", "cancel")[i % 3])
        assert self.tier.held_device_blocks == set()
        assert self.lost == []
        fresh = {f"fresh {i}": i for i in range(self.tier.num_chunks)}
        self.tier.finish(self.tier.begin_store(fresh).transfer_id)
        assert self.tier.longest_run(fresh) == self.tier.num_chunks


TierMachine.TestCase.settings = settings(max_examples=70, stateful_step_count=50, deadline=None)
TestTierMachine = TierMachine.TestCase
