"""What happens to drafted tokens: proposed, dropped, verified."""

from dataclasses import dataclass

from pagedviz.engine.log.events.base import Event, Token
from pagedviz.engine.log.text import sentences


@dataclass(frozen=True)
class TokensDrafted(Event):
    """“{draft}” is drafted behind what {seq_id} has, for {positions}. The next launch computes it together with the
    token before it; what the model would not have said itself is then taken back."""

    seq_id: str
    position: int
    tokens: tuple[Token, ...]
    confidences: tuple[float, ...] = ()  # none for given drafts

    @property
    def phrases(self) -> dict[str, str]:
        last = self.position + len(self.tokens) - 1
        places = f"position {last}" if len(self.tokens) == 1 else f"positions {self.position} to {last}"
        return {"draft": " ".join(map(str, self.tokens)), "positions": places}


@dataclass(frozen=True)
class DraftsVerified(Event):
    """{verdict}. {seq_id} has {num_tokens:token} in the cache."""

    seq_id: str
    accepted: tuple[Token, ...]
    rejected: tuple[Token, ...]
    slots: tuple[int, ...]  # of what was rejected, in every group; they hold garbage from now on
    num_tokens: int

    @property
    def phrases(self) -> dict[str, str]:
        number = sentences.count(len(self.accepted) + len(self.rejected), "draft")
        if not self.rejected:
            return {"verdict": f"The model says what was drafted: {number} of {self.seq_id} accepted"}
        slots = f"slot {self.slots[0]} holds" if len(self.slots) == 1 else f"slots {sentences.named(self.slots)} hold"
        num_accepted = len(self.accepted)
        first = ("none", "the first")[num_accepted] if num_accepted < 2 else f"the first {num_accepted}"
        said = f"Of {number} of {self.seq_id} the model says {first} itself"
        return {"verdict": f"{said}. Rolled back: {slots} garbage now"}


@dataclass(frozen=True)
class DraftsDropped(Event):
    """Dropped before they are verified: {tokens:draft} of {seq_id}, because {reason}."""

    seq_id: str
    tokens: tuple[Token, ...]
    reason: str
