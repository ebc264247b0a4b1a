"""Orders of the waiting: whole answers, in every order in which the waiting may be handed over."""

from itertools import permutations

import pytest

from pagedviz.engine.policies.orders import Waiting, by_priority, first_come, longest_prefix_first
from pagedviz.engine.policies.profiles import POLICIES

WAITING = (
    Waiting("A", arrival=3, priority=1, num_hit_tokens=4),
    Waiting("B", arrival=7, priority=0, num_hit_tokens=8),
    Waiting("C", arrival=5, priority=1, num_hit_tokens=4),
    Waiting("D", arrival=1, priority=2, num_hit_tokens=0),
    Waiting("E", arrival=2, priority=-1, num_hit_tokens=0),
)


SERVED = {first_come: "DEACB", by_priority: "EBACD", longest_prefix_first: "BACDE"}


def test_every_order_that_a_scenario_may_choose_is_tested():
    assert {order.__name__ for order in SERVED} == {order.__name__ for order in POLICIES["order"]}


@pytest.mark.parametrize(("order", "served"), SERVED.items())
def test_order_depends_on_the_requests_alone_and_not_on_how_they_are_handed_over(order, served):
    for waiting in permutations(WAITING):
        assert "".join(request.seq_id for request in order(waiting)) == served


@pytest.mark.parametrize("order", SERVED)
def test_order_loses_no_request_and_leaves_the_queue_as_it_was(order):
    waiting = list(WAITING)
    assert sorted(request.seq_id for request in order(waiting)) == list("ABCDE")
    assert tuple(waiting) == WAITING
    assert order([]) == []
