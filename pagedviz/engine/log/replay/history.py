"""Every state of a run, kept as events. Some states are kept as snapshots; the others are replayed from them."""

from pagedviz.engine.log import replay
from pagedviz.engine.log.events.base import Event
from pagedviz.engine.log.snapshot import Snapshot

KEY_FRAME = 64  # one of so many states is kept as a snapshot


class History:
    """The states after 0, 1, 2, ... events. `events[k]` leads from state k to state k + 1; `last` is the newest."""

    def __init__(self, base: Snapshot) -> None:
        self.events: list[Event] = []
        self.last = base
        self._key_frames = [base]

    def append(self, event: Event, after: Snapshot | None = None) -> None:
        """Add an event, and the state after it if that is known already."""
        self.last = replay.apply(self.last, event) if after is None else after
        self.events.append(event)
        if len(self.events) % KEY_FRAME == 0:
            self._key_frames.append(self.last)

    def at(self, index: int) -> Snapshot:
        """The state after `index` events."""
        state = self._key_frames[index // KEY_FRAME]
        for event in self.events[index // KEY_FRAME * KEY_FRAME : index]:
            state = replay.apply(state, event)
        return state
