"""Any state of a run can be asked for, in any order, and is the one that the manager had."""

import pytest

from pagedviz.engine.log.replay import history
from pagedviz.engine.log.replay.history import History
from pagedviz.run.play import planner
from tests.run.run_cases import RUN


def states():
    """The events of a run, and the manager's states before and after them all."""
    player = planner(RUN.cache, RUN.seed)
    happenings = [happening for op in RUN.ops for happening in player.perform(op)]
    return [h.event for h in happenings], [player.base, *(h.snapshot for h in happenings)]


@pytest.mark.parametrize("known", [True, False], ids=["states given", "states replayed"])
@pytest.mark.parametrize("key_frame", [1, 4, 5, 64])
def test_every_state_is_the_managers(monkeypatch, key_frame, known):
    monkeypatch.setattr(history, "KEY_FRAME", key_frame)
    events, expected = states()
    past = History(expected[0])
    for k, event in enumerate(events):
        past.append(event, expected[k + 1] if known else None)
        assert past.last == expected[k + 1]
    assert past.events == events
    for index in (0, 1, 4, 5, 9, len(events), len(events) - 1, 3, 0):
        assert past.at(index) == expected[index]
    assert len(past._key_frames) == 1 + len(events) // key_frame


def test_history_without_events_is_its_base():
    base = states()[1][0]
    assert History(base).at(0) == History(base).last == base
