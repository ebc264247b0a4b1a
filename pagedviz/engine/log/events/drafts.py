"""Events of drafted tokens: proposed, dropped, verified."""

from dataclasses import dataclass

from pagedviz.engine.log.events.base import Event, Token
from pagedviz.engine.log.text import sentences


@dataclass(frozen=True)
class TokensDrafted(Event):
    """“{draft}” was drafted behind {seq_id}'s tokens, for {positions}. The next launch computes {tokens:draft} and the
    token before. A draft that the model does not choose itself is then rolled back, with all behind it."""

    seq_id: str
    position: int
    tokens: tuple[Token, ...]
    confidences: tuple[float, ...] = ()  # none for given drafts

    @property
    def phrases(self) -> dict[str, str]:
        positions = sentences.span("position", self.position, len(self.tokens))
        return {"draft": " ".join(map(str, self.tokens)), "positions": positions}


@dataclass(frozen=True)
class DraftsVerified(Event):
    """{verdict}. {seq_id} has {num_tokens:token} in the cache."""

    seq_id: str
    accepted: tuple[Token, ...]
    rejected: tuple[Token, ...]
    slots: tuple[int, ...]  # of the rejected drafts, in every group; they hold garbage from now on
    num_tokens: int

    @property
    def phrases(self) -> dict[str, str]:
        num_accepted, number = len(self.accepted), len(self.accepted) + len(self.rejected)
        drafts = f"{self.seq_id}'s {sentences.count(number, 'draft')}"
        if not self.rejected:
            return {"verdict": f"The model accepted {'' if number == 1 else 'all of '}{drafts}"}
        part = ("none", "the first")[num_accepted] if num_accepted < 2 else f"the first {num_accepted}"
        slots = f"slot {self.slots[0]} holds" if len(self.slots) == 1 else f"slots {sentences.named(self.slots)} hold"
        return {"verdict": f"The model accepted {part} of {drafts}. Rolled back: {slots} garbage now"}


@dataclass(frozen=True)
class DraftsDropped(Event):
    """{seq_id} lost {tokens:draft} before verification, because {reason}."""

    seq_id: str
    tokens: tuple[Token, ...]
    reason: str
