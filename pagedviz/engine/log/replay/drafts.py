"""How the events of drafted tokens change the state."""

from collections.abc import Callable
from typing import Any

from pagedviz.engine.log.events.base import Event
from pagedviz.engine.log.events.drafts import DraftsDropped, DraftsVerified, TokensDrafted
from pagedviz.engine.log.replay.base import with_, without
from pagedviz.engine.log.snapshot import Snapshot


def _tokens_drafted(s: Snapshot, e: TokensDrafted) -> dict[str, Any]:
    return {"drafted": with_(s.drafted, **{e.seq_id: e.tokens})}


def _drafts_verified(s: Snapshot, e: DraftsVerified) -> dict[str, Any]:
    return {
        "tokens": with_(s.tokens, **{e.seq_id: s.tokens[e.seq_id][: e.num_tokens]}),
        "unverified": without(s.unverified, e.seq_id),
    }


def _drafts_dropped(s: Snapshot, e: DraftsDropped) -> dict[str, Any]:
    kept = s.drafted[e.seq_id][: -len(e.tokens)]
    return {"drafted": with_(s.drafted, **{e.seq_id: kept}) if kept else without(s.drafted, e.seq_id)}


CHANGES: dict[type[Event], Callable[[Snapshot, Any], dict[str, Any]]] = {
    TokensDrafted: _tokens_drafted,
    DraftsVerified: _drafts_verified,
    DraftsDropped: _drafts_dropped,
}
