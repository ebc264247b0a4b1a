"""A sequence is scheduled tokens, and a launch writes them."""

from collections.abc import Sequence as Tokens

from pagedviz.engine.blocks.changes import caching
from pagedviz.engine.blocks.sequence import Sequence
from pagedviz.engine.blocks.state import CacheState
from pagedviz.engine.log.events.base import Token
from pagedviz.engine.log.events.blocks import BatchWritten, TokensWritten, TokenWritten


def schedule(state: CacheState, seq: Sequence, tokens: Tokens[Token]) -> None:
    """Let the next launch write these tokens, drafts last; their blocks are in the table."""
    seq.scheduled = tokens
    # Drafts asked for by hand wait for a launch of their own; before it, no prompt may hit what it fills.
    if state.profile.publish("scheduled") and (seq.managed or not seq.drafts):
        caching.publish(state, seq)


def unschedule(state: CacheState, seq: Sequence) -> None:
    """Take back what a sequence was scheduled; its blocks stay its own."""
    num_full = seq.seq_len // state.block_size
    for j in range(num_full, len(seq.links)):
        for group in range(len(state.windows)):
            caching.forget_pending(state, seq.on_device(j, group))
    del seq.links[num_full:]
    seq.scheduled = ()


def write(state: CacheState, sequences: Tokens[Sequence]) -> None:
    """One launch: every sequence writes what it was scheduled."""
    size, writes = state.block_size, []
    for seq in sequences:
        seq.tokens += seq.awaited
        position, tokens = seq.seq_len, tuple(seq.scheduled)
        positions = range(position, position + len(tokens))
        slots = tuple([seq.on_device(p // size) * size + p % size for p in positions])
        seq.tokens += tokens
        seq.scheduled, seq.awaited, seq.last_scheduled = (), [], state.engine_step
        if seq.drafts:
            seq.unverified, seq.drafts = len(seq.drafts), ()
        writes.append((seq.seq_id, position, tokens, slots))
    state.pending.clear()
    if len(writes) > 1:
        seq_ids, positions_of, tokens_of, slots_of = zip(*writes, strict=True)
        state.report(
            BatchWritten(
                seq_ids=seq_ids,
                positions=positions_of,
                tokens=tokens_of,
                slots=slots_of,
                engine_step=state.engine_step,
            )
        )
    elif len(tokens) > 1:
        state.report(
            TokensWritten(
                seq_id=seq.seq_id, position=position, tokens=tokens, slots=slots, engine_step=state.engine_step
            )
        )
    else:
        block, offset = divmod(slots[0], size)
        state.report(
            TokenWritten(
                seq_id=seq.seq_id,
                position=position,
                token=tokens[0],
                block=block,
                offset=offset,
                slot=slots[0],
                engine_step=state.engine_step,
            )
        )
    if state.profile.publish("written"):
        for seq in sequences:
            caching.publish(state, seq)
    if state.listener:
        for seq in sequences:
            caching.offer_computed(state, seq)
