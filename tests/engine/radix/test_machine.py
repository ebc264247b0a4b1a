"""Any operations in any order: the radix tree agrees with a plain dictionary from each cached prefix to its last page.

Three letters and short pages, so that prompts meet, part and end inside runs all the time.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pagedviz.engine.log.errors import NotLocked, PageOwned, TooFewEvictable, TooFewPages, UnknownNode
from pagedviz.engine.radix import replay
from pagedviz.engine.radix.eviction import fifo, lfu, lru
from pagedviz.engine.radix.snapshot import ROOT, RadixSnapshot
from tests.engine.radix.radix_cases import WatchedTree, refused

NUM_PAGES = 24
TOKENS = st.lists(st.sampled_from("abc"), max_size=9).map(tuple)
SALT = st.sampled_from([None, None, None, "adapter"])
WHICH = st.integers(0, 11)

Prefix = tuple[str | None, tuple[str, ...]]


def prefixes(state: RadixSnapshot) -> dict[Prefix, int]:
    """Each cached prefix of whole pages, and its last page, read off the nodes."""
    size, read = state.page_size, {}
    for node, run in state.nodes.items():
        before, above = (), state.nodes[node].parent
        while above is not None:
            before, above = state.nodes[above].tokens + before, state.nodes[above].parent
        for i, page in enumerate(run.pages):
            read[run.salt, before + run.tokens[: (i + 1) * size]] = page
    return read


class RadixMachine(RuleBasedStateMachine):
    operations = 0  # of all machines of this process

    @initialize(
        page_size=st.integers(1, 3),
        policy=st.sampled_from([lru, lfu, fifo]),
        random=st.randoms(use_true_random=False),
    )
    def start(self, page_size, policy, random):
        self.tree = WatchedTree(page_size, policy)
        self.size = page_size
        self.free = list(range(NUM_PAGES))
        random.shuffle(self.free)
        self.cached: dict[Prefix, int] = {}
        self.locks: list[tuple[int, Prefix]] = []
        self.ends: dict[int, Prefix] = {ROOT: (None, ())}
        self.replayed, self.num_replayed = self.tree.snapshot(), 0

    # --- what the dictionary says ---

    def longest(self, salt: str | None, tokens: tuple[str, ...]) -> tuple[int, ...]:
        """The pages of the longest cached prefix of whole pages."""
        pages: list[int] = []
        while len(pages) < len(tokens) // self.size:
            page = self.cached.get((salt, tokens[: (len(pages) + 1) * self.size]))
            if page is None:
                break
            pages.append(page)
        return tuple(pages)

    def is_locked(self, prefix: Prefix) -> bool:
        salt, tokens = prefix
        return any(s == salt and locked[: len(tokens)] == tokens for _, (s, locked) in self.locks)

    def evictable(self) -> int:
        return sum(self.size for prefix in self.cached if not self.is_locked(prefix))

    def forget(self, freed: tuple[int, ...]) -> None:
        assert len(set(freed)) == len(freed)
        gone = [prefix for prefix, page in self.cached.items() if page in freed]
        assert len(gone) == len(freed)
        assert not any(self.is_locked(prefix) for prefix in gone)
        for prefix in gone:
            del self.cached[prefix]
        assert all(self.longest(salt, tokens)[-1:] == (page,) for (salt, tokens), page in self.cached.items())
        self.free += freed

    def ends_at(self, node: int, salt: str | None, tokens: tuple[str, ...]) -> None:
        """The node is the last of this prefix, as it was when it was last named."""
        prefix = (salt, tokens) if tokens else (None, ())
        assert self.ends.setdefault(node, prefix) == prefix

    # --- rules ---

    @rule(tokens=TOKENS, salt=SALT, lock=st.booleans())
    def match(self, tokens, salt, lock):
        sizes = self.tree.sizes
        found = self.tree.match(tokens, salt)
        assert found.pages == self.longest(salt, tokens[:-1])
        assert found.num_tokens == len(found.pages) * self.size
        assert self.tree.sizes == sizes
        self.ends_at(found.node, salt, tokens[: found.num_tokens])
        if lock:
            self.tree.lock(found.node)
            self.locks.append((found.node, self.ends[found.node]))

    @rule(tokens=TOKENS, salt=SALT, num_matched=st.integers(0, 3), tail=st.booleans(), lock=st.booleans())
    def insert(self, tokens, salt, num_matched, tail, lock):
        """As a request does: some pages from its match, the others computed anew, perhaps twice."""
        mine = self.longest(salt, tokens)[:num_matched]
        whole = len(tokens) // self.size
        if whole - len(mine) + tail > len(self.free):
            return
        fresh = [self.free.pop() for _ in range(whole - len(mine) + tail)]
        held = self.longest(salt, tokens)
        kept = self.tree.insert(tokens, [*mine, *fresh], salt)
        assert (kept.num_reused, kept.num_new) == (len(held) * self.size, (whole - len(held)) * self.size)
        assert kept.duplicates == tuple(fresh[: len(held) - len(mine)])
        assert kept.pages == held + tuple(fresh[len(held) - len(mine) : whole - len(mine)])
        for i in range(len(held), whole):
            self.cached[salt, tokens[: (i + 1) * self.size]] = kept.pages[i]
        self.free += [*kept.duplicates, *fresh[whole - len(mine) :]]
        self.ends_at(kept.node, salt, tokens[: whole * self.size])
        if lock:
            self.tree.lock(kept.node)
            self.locks.append((kept.node, self.ends[kept.node]))

    @precondition(lambda self: self.locks)
    @rule(which=WHICH)
    def unlock(self, which):
        node, _ = self.locks.pop(which % len(self.locks))
        self.tree.unlock(node)

    @rule(num_tokens=st.integers(0, 12))
    def evict(self, num_tokens):
        evictable, all_of_it = self.evictable(), len(self.cached) * self.size
        if num_tokens > evictable:
            numbers = {"needed": num_tokens, "evictable": evictable, "protected": all_of_it - evictable}
            with refused(self.tree, TooFewEvictable, **numbers):
                self.tree.evict(num_tokens)
            return
        reported = len(self.tree.events)
        freed = self.tree.evict(num_tokens)
        self.forget(freed)
        assert len(freed) * self.size >= num_tokens
        last = self.tree.events[-1] if len(self.tree.events) > reported else None
        assert last is None or len(freed) * self.size - len(last.tokens) < num_tokens

    @precondition(lambda self: self.cached)
    @rule(which=WHICH)
    def refuse_what_is_wrong(self, which):
        (salt, tokens), page = list(self.cached.items())[which % len(self.cached)]
        with refused(self.tree, PageOwned, page=page):
            self.tree.insert("d" * self.size, [page], salt)
        with refused(self.tree, TooFewPages, num_tokens=len(tokens), needed=len(tokens) // self.size, given=0):
            self.tree.insert(tokens, [], salt)
        nodes = self.tree.snapshot().nodes
        node = list(self.ends)[which % len(self.ends)]
        if node not in nodes:
            with refused(self.tree, UnknownNode, node=node):
                self.tree.lock(node)
        elif node not in [locked for locked, _ in self.locks]:
            with refused(self.tree, NotLocked, node=node, below=nodes[node].lock_count):
                self.tree.unlock(node)

    # --- what holds ---

    @invariant()
    def nodes_hold_what_the_dictionary_holds(self):
        type(self).operations += 1
        assert prefixes(self.tree.snapshot()) == self.cached
        assert self.tree.sizes == (self.evictable(), len(self.cached) * self.size - self.evictable())
        assert sorted([*self.free, *self.cached.values()]) == list(range(NUM_PAGES))

    @invariant()
    def locked_nodes_end_where_they_did(self):
        nodes = self.tree.snapshot().nodes
        assert all(node in nodes for node, _ in self.locks)

    @invariant()
    def the_log_gives_the_tree(self):
        for event in self.tree.events[self.num_replayed :]:
            self.replayed = replay.apply(self.replayed, event)
        self.num_replayed = len(self.tree.events)
        assert self.replayed == self.tree.snapshot()

    def teardown(self):
        """When no node is locked, all of the tree can be evicted."""
        if not hasattr(self, "tree"):
            return
        for node, _ in self.locks:
            self.tree.unlock(node)
        self.locks = []
        self.forget(self.tree.evict(len(self.cached) * self.size))
        assert self.tree.sizes == (0, 0)
        assert list(self.tree.snapshot().nodes) == [ROOT]


RadixMachine.TestCase.settings = settings(max_examples=70, stateful_step_count=50, deadline=None)
TestRadixMachine = RadixMachine.TestCase
