"""What the cache cannot do: one exception for each reason, with its numbers."""

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
    """{seq_id} needs {needed:block} by itself, and the whole device pool has {total}. It can never fit. Give the pool
    more blocks, or {seq_id} fewer tokens."""


class NoFreeHostBlocks(CacheError):
    """{seq_id} needs {needed:host block}, and {free} of {total} are free. All of its blocks move, or none. Free a
    sequence that is on the host first."""


class NeverAdmitted(CacheError):
    """{seq_id} may need {needed:block} in all, and {watermark} of {total} must stay free. It would wait for ever. Ask
    for fewer tokens, or lower the watermark."""


class OverBudget(CacheError):
    """{seq_id} may grow to {most:token}, and a step computes {budget} at most. This profile does not split prompts, so
    after a preemption {seq_id} could not be computed again. Raise max_num_batched_tokens."""


class NothingToSchedule(CacheError):
    """No request waits or runs, so there is nothing to schedule. Submit a request first."""


class UnknownRequest(CacheError):
    """There is no unfinished request {seq_id}. The unfinished requests are: {known}."""


class OwnedByRequest(CacheError):
    """{seq_id} belongs to a request, so only the scheduler changes it. Take engine steps, or abort the request."""


class UnknownSequence(CacheError):
    """There is no sequence {seq_id}. The sequences are: {known}."""


class DuplicateSequence(CacheError):
    """The name {seq_id} is taken. Choose another name, or append to {seq_id}."""


class NoTokens(CacheError):
    """{seq_id} was given no tokens. Give it at least one."""


class TooFewEvictable(CacheError):
    """{needed:token} must be evicted, and only {evictable} can be. {protected} more are locked by sequences that use
    them. Free a sequence first."""


class TooFewPages(CacheError):
    """{num_tokens:token} fill {needed:whole page}, and {given} were given. Give one page for each of them."""


class PageOwned(CacheError):
    """Page {page} was given twice, or the tree owns it already. A page belongs to one node."""


class UnknownNode(CacheError):
    """There is no node {node} in the tree: it was evicted, or never existed. Lock a node that must not be evicted."""


class NotLocked(CacheError):
    """Node {node} has no lock of its own, so it cannot be unlocked. The nodes below it have {below:lock}."""


class TooFewChunks(CacheError):
    """The host tier needs {needed:host chunk}. {free} of {total} are free, and {evictable} more can be evicted. The
    others are being stored or loaded, or belong to this store. All blocks are stored or none. Wait for a transfer
    first."""


class NotReady(CacheError):
    """{block_hash} cannot be loaded: on the host it is {state}. Look it up again, and load it as soon as it is
    found."""


class BlockInTransfer(CacheError):
    """An unfinished transfer reads or writes device block {block}, or the block was given twice. Wait for the
    transfer."""


class UnknownTransfer(CacheError):
    """There is no unfinished transfer {transfer_id}. The unfinished transfers are: [{known}]. A transfer ends once."""


class NotResident(CacheError):
    """{seq_id} is not on the device: some of its blocks are host blocks [{host_blocks}]. Reload it first."""


class AlreadyResident(CacheError):
    """All blocks of {seq_id} are on the device already, so there is nothing to reload."""


class AlreadySpilled(CacheError):
    """All blocks of {seq_id} are on the host already, so there is nothing to spill."""


class SharedWithResident(CacheError):
    """No block of {seq_id} can move: sequences that stay on the device also name its blocks [{blocks}]. Free or spill
    those sequences too."""


class ForkUnsupported(CacheError):
    """Profile {profile} has no fork, so {seq_id} was not made. Its tables share only full cached blocks, so there is no
    copy-on-write. Choose vllm-v0, or say "fork": true in the cache settings."""


class BlockNotInUse(CacheError):
    """Block {block} is free already. If it were freed twice, it would be handed out twice."""


class BlocksInUse(CacheError):
    """The prefix cache cannot be reset while blocks are in use. Blocks in use: {in_use}. Free every sequence first."""


class DraftsPending(CacheError):
    """{seq_id} has {drafts:draft} that are not verified yet. Verify them first."""


class NoDrafts(CacheError):
    """{seq_id} has no drafts to verify. Draft some first."""


class NoHostTier(CacheError):
    """This cache has no host tier, so no block can be stored or loaded. Set host_chunks to more than 0."""


class NoRoomToLoad(CacheError):
    """The load needs {needed:device block}, and {free} of {total} are free, without those that this prompt hits. Free
    or spill a sequence first."""


class NothingToStore(CacheError):
    """{seq_id} has {cached:cached block} on the device. Each is on the host already, or in a transfer, so there is
    nothing to store."""


class NothingToLoad(CacheError):
    """The device has {hit:token} of this prompt cached, and the host has no more of it, so there is nothing to load. A
    block can be loaded when its store has finished."""


class SeveralTables(CacheError):
    """{seq_id} has {groups} tables, one for each group. Only a sequence with one table can be spilled or forked."""


class TooWide(CacheError):
    """{seq_id} needs {width} sequences in one step, and a step takes {most} at most, by max_num_seqs and
    max_num_batched_tokens. Ask for fewer, or raise these limits."""


class NotConfident(CacheError):
    """The drafter's first guess for {seq_id}, “{token}”, has a confidence of {confidence}, and at least {least} was
    asked for. Nothing is drafted. Ask for less confidence."""
