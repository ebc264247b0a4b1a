"""What the cache cannot do: one exception a reason, carrying its numbers. Whoever raises one has changed nothing."""

from typing import Any

from pagedviz.engine.log.text import sentences


class CacheError(Exception):
    """An operation was refused and changed nothing. A subclass's docstring is its sentence."""

    def __init__(self, **numbers: Any) -> None:
        self.numbers = numbers
        super().__init__(sentences.fill(type(self).__doc__ or "", numbers))

    @property
    def sentence(self) -> str:
        return str(self)

    def to_json(self) -> dict[str, Any]:
        """{"error": class name, "sentence": what the screen shows, and the numbers by name}."""
        return {"error": type(self).__name__, "sentence": self.sentence, **self.numbers}


class NoFreeBlocks(CacheError):
    """{seq_id} needs {needed:more device block}, and {free} of {total} are free. Free or spill a sequence first."""


class NeverFits(CacheError):
    """{seq_id} needs {needed} blocks by itself, and the whole device pool has {total}. It can never fit."""


class NoFreeHostBlocks(CacheError):
    """{seq_id} would move {needed:block} to the host, and {free} of {total} host blocks are free. All or none move."""


class NeverAdmitted(CacheError):
    """{seq_id} may come to need {needed:block}. With {watermark} kept free of {total}, it would wait for ever."""


class OverBudget(CacheError):
    """{seq_id} may grow to {most:token}, and a prompt is not split here: {budget} at most are computed in a step. After
    a preemption it could not be computed again."""


class NothingToSchedule(CacheError):
    """No request waits or runs, so there is nothing to schedule. Submit one first."""


class UnknownRequest(CacheError):
    """There is no unfinished request {seq_id}; there is: {known}."""


class OwnedByRequest(CacheError):
    """{seq_id} belongs to a request, and only the scheduler moves it. Let it take a step, or abort the request."""


class UnknownSequence(CacheError):
    """There is no sequence {seq_id}; there is: {known}."""


class DuplicateSequence(CacheError):
    """There is a sequence {seq_id} already. Take another name, or append to it."""


class NoTokens(CacheError):
    """{seq_id} was given no token. One token at least is needed."""


class TooFewEvictable(CacheError):
    """{needed:token} should be evicted, and {evictable} can be; {protected} more are locked, and free only when nobody
    uses them."""


class TooFewPages(CacheError):
    """{num_tokens:token} fill {needed:whole page}, and {given} were given. Give one for each of them."""


class PageOwned(CacheError):
    """Page {page} was given for two runs of tokens, or the tree owns it already. A page holds one run."""


class UnknownNode(CacheError):
    """There is no node {node} in the tree. It was evicted, or never there: lock a node before anything is evicted."""


class NotLocked(CacheError):
    """Node {node} has no lock of its own to give up; the nodes below it have {below}."""


class TooFewChunks(CacheError):
    """The host tier needs {needed:host chunk}: {free} of {total} are free, and {evictable} more can be evicted. What is
    being stored or loaded stays, and so does what was given with the others. All are stored or none."""


class NotReady(CacheError):
    """{block_hash} cannot be loaded: on the host it is {state}. Look it up again, and load what is found at once."""


class BlockInTransfer(CacheError):
    """Device block {block} is read or written by an unfinished transfer, or was given twice. Wait for the transfer."""


class UnknownTransfer(CacheError):
    """There is no unfinished transfer {transfer_id}; there is [{known}]. A transfer ends once."""


class NotResident(CacheError):
    """{seq_id} is not on the device: a part of it is in host blocks [{host_blocks}]. Reload it first."""


class AlreadyResident(CacheError):
    """{seq_id} is on the device already, so there is nothing to reload."""


class AlreadySpilled(CacheError):
    """All blocks of {seq_id} are on the host already, so there is nothing to spill."""


class SharedWithResident(CacheError):
    """Nothing of {seq_id} can move: sequences that stay resident also name its device blocks [{blocks}]."""


class ForkUnsupported(CacheError):
    """Profile {profile} has no fork, so {seq_id} was not made: its tables only ever share full cached blocks, and
    copy-on-write does not exist there. Choose vllm-v0, or say "fork": true in the cache
    settings."""


class BlockNotInUse(CacheError):
    """Block {block} is free already; freeing it twice would hand it out twice."""


class BlocksInUse(CacheError):
    """The cached prefixes stay: {in_use:block} in use would lose what others may hit. Free every sequence first."""


class DraftsPending(CacheError):
    """{seq_id} has {drafts:draft} that nobody has verified yet. Verify them first."""


class NoDrafts(CacheError):
    """{seq_id} has no drafts to verify. Draft some first."""


class NoHostTier(CacheError):
    """This cache has no host tier, so nothing can be stored there or loaded. Give it host_chunks."""


class NoRoomToLoad(CacheError):
    """The load needs {needed:device block}, and {free} of {total} are free beside those that the same prompt hits. Free
    or spill a sequence first."""


class NothingToStore(CacheError):
    """{seq_id} has {cached:cached block} on the device, and the host has each of them, or a transfer is at it."""


class NothingToLoad(CacheError):
    """The host has nothing of this prompt beyond what the device has cached of it, {hit:token}. A store that has not
    finished is no hit."""


class SeveralTables(CacheError):
    """{seq_id} has {groups} tables, one for each group, and only a single one can be spilled or forked."""


class TooWide(CacheError):
    """{seq_id} would go on as {width} sequences at once, and a step takes {most} at most: max_num_seqs, or as many
    tokens as max_num_batched_tokens."""


class NotConfident(CacheError):
    """The drafter's first guess for {seq_id}, “{token}”, has a confidence of {confidence}, and {least} at least was
    asked for. Nothing is drafted."""
