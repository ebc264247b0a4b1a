"""Drafts are proposed, dropped before their launch, and verified after it."""

from collections.abc import Sequence as Tokens

from pagedviz.engine.blocks.sequence import Sequence
from pagedviz.engine.blocks.state import CacheState
from pagedviz.engine.log.events.base import Token
from pagedviz.engine.log.events.drafts import DraftsDropped, DraftsVerified, TokensDrafted


def propose(state: CacheState, seq: Sequence, position: int, drafts: Tokens[Token], confidences: Tokens[float]) -> None:
    """Let the next launch verify these drafts, behind a token that is known."""
    seq.drafts = tuple(drafts)
    state.report(TokensDrafted(seq_id=seq.seq_id, position=position, tokens=seq.drafts, confidences=tuple(confidences)))


def drop(state: CacheState, seq: Sequence, keep: int, reason: str) -> None:
    """Verify only the first few of them."""
    dropped, seq.drafts = seq.drafts[keep:], seq.drafts[:keep]
    state.report(DraftsDropped(seq_id=seq.seq_id, tokens=dropped, reason=reason))


def verify(state: CacheState, seq: Sequence, num_accepted: int) -> None:
    """Take back what was written of the drafts behind the accepted ones; its slots hold garbage."""
    size, end = state.block_size, seq.seq_len
    drafted = tuple(seq.tokens[end - seq.unverified :])
    rolled_back = range(end - seq.unverified + num_accepted, end)
    del seq.tokens[rolled_back.start :]
    seq.unverified = 0
    groups = range(len(state.windows))
    slots = [seq.on_device(p // size, group) * size + p % size for group in groups for p in rolled_back]
    state.report(
        DraftsVerified(
            seq_id=seq.seq_id,
            accepted=drafted[:num_accepted],
            rejected=drafted[num_accepted:],
            slots=tuple(slots),
            num_tokens=seq.seq_len,
        )
    )
