"""What must hold in the radix tree after every event. Each invariant yields one sentence for each breach."""

from collections import Counter
from collections.abc import Callable, Iterator

from pagedviz.engine.radix import replay
from pagedviz.engine.radix.events import RadixEvent, RadixEvicted
from pagedviz.engine.radix.snapshot import ROOT, RadixSnapshot

RadixInvariant = Callable[[RadixSnapshot, RadixEvent, RadixSnapshot], Iterator[str]]


def sizes_add_up(before: RadixSnapshot, event: RadixEvent, after: RadixSnapshot) -> Iterator[str]:
    """`evictable_size` counts the tokens of the nodes without a lock, `protected_size` those of the others."""
    evictable = sum(len(run.tokens) for run in after.nodes.values() if not run.lock_count)
    protected = sum(len(run.tokens) for run in after.nodes.values() if run.lock_count)
    if after.evictable_size != evictable:
        yield f"evictable_size is {after.evictable_size}, and {evictable} tokens are not locked"
    if after.protected_size != protected:
        yield f"protected_size is {after.protected_size}, and {protected} tokens are locked"


def one_root(before: RadixSnapshot, event: RadixEvent, after: RadixSnapshot) -> Iterator[str]:
    """Every node but the root has a parent in the tree. It has the parent's salt, unless the parent is the root."""
    for node, run in after.nodes.items():
        if run.parent is None:
            if node != ROOT:
                yield f"node {node} has no parent"
        elif run.parent not in after.nodes:
            yield f"node {node} hangs below node {run.parent}, which is gone"
        elif run.parent != ROOT and run.salt != after.nodes[run.parent].salt:
            yield f"node {node} has salt {run.salt}, and node {run.parent} above it {after.nodes[run.parent].salt}"


def locked_above(before: RadixSnapshot, event: RadixEvent, after: RadixSnapshot) -> Iterator[str]:
    """The nodes above a locked node are locked too: a node counts at least the locks of its children."""
    below: Counter[int] = Counter()
    for run in after.nodes.values():
        if run.parent is not None:
            below[run.parent] += run.lock_count
    for node, run in after.nodes.items():
        if run.lock_count < below[node]:
            yield f"node {node} counts {run.lock_count} locks, and its children {below[node]}"


def whole_pages(before: RadixSnapshot, event: RadixEvent, after: RadixSnapshot) -> Iterator[str]:
    """The tokens of a node fill its pages. Only the root has none."""
    for node, run in after.nodes.items():
        if len(run.tokens) != len(run.pages) * after.page_size:
            yield f"node {node} has {len(run.tokens)} tokens in {len(run.pages)} pages of {after.page_size}"
        if (node == ROOT) != (not run.tokens):
            yield f"node {node} has {len(run.tokens)} tokens"


def one_child_a_page(before: RadixSnapshot, event: RadixEvent, after: RadixSnapshot) -> Iterator[str]:
    """No two children of a node begin with the same page under the same salt, so a prompt has only one path."""
    times = Counter((run.parent, run.salt, run.tokens[: after.page_size]) for run in after.nodes.values())
    for (parent, salt, page), count in times.items():
        if count > 1:
            yield f"{count} children of node {parent} begin with {page} under salt {salt}"


def owned_once(before: RadixSnapshot, event: RadixEvent, after: RadixSnapshot) -> Iterator[str]:
    """A page, and so a slot, belongs to one node, once."""
    for page, count in Counter(page for run in after.nodes.values() for page in run.pages).items():
        if count > 1:
            yield f"page {page} is owned {count} times"


def only_free_leaves_evicted(before: RadixSnapshot, event: RadixEvent, after: RadixSnapshot) -> Iterator[str]:
    """An evicted node was a leaf without a lock."""
    if isinstance(event, RadixEvicted):
        if before.nodes[event.node].lock_count:
            yield f"node {event.node} was evicted under {before.nodes[event.node].lock_count} locks"
        if children := before.children(event.node):
            yield f"node {event.node} was evicted above its children {children}"


def replay_agrees(before: RadixSnapshot, event: RadixEvent, after: RadixSnapshot) -> Iterator[str]:
    """The event alone, applied to the tree before, gives the tree after: the log is complete."""
    if replay.apply(before, event) != after:
        yield f"replaying {event.kind} gives another tree"


INVARIANTS: tuple[RadixInvariant, ...] = (
    sizes_add_up,
    one_root,
    locked_above,
    whole_pages,
    one_child_a_page,
    owned_once,
    only_free_leaves_evicted,
    replay_agrees,
)


def broken(before: RadixSnapshot, event: RadixEvent, after: RadixSnapshot) -> list[str]:
    """Each broken invariant as "name: what is wrong, with ids". Empty when all hold."""
    return [f"{check.__name__}: {sentence}" for check in INVARIANTS for sentence in check(before, event, after)]
