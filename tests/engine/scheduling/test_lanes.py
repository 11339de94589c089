"""What waits, and in which order it is taken out."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.requests import ServiceClass
from engine.scheduling.lanes import Lane
from tests.engine.scheduling.jobs import BACKGROUND, INTERACTIVE, STANDARD, job, lane, names


def test_the_head_is_due_first_whatever_its_class():
    waiting = lane(
        job("late", due=5.0, service_class=INTERACTIVE), job("soon", due=4.0, service_class=BACKGROUND)
    )

    assert waiting.head().id == "soon"
    assert waiting.pop_head().id == "soon"
    assert waiting.urgency() is INTERACTIVE


def test_the_next_is_of_the_most_urgent_class_and_due_first_in_it():
    waiting = lane(
        job("b", due=1.0, service_class=BACKGROUND),
        job("s2", due=3.0),
        job("s1", due=2.0),
        job("i", due=9.0, service_class=INTERACTIVE),
    )

    assert names(waiting.pop_next() for _ in range(4)) == ["i", "s1", "s2", "b"]


def test_those_due_together_go_in_the_order_they_came():
    waiting = lane(*[job(f"j{n}", due=1.0) for n in range(50)])

    assert names(waiting.pop_next() for _ in range(50)) == [f"j{n}" for n in range(50)]


def test_an_empty_lane_has_no_head_no_urgency_and_no_age():
    empty = Lane("a")

    assert (empty.head(), empty.urgency(), empty.oldest_arrival()) == (None, None, math.inf)
    assert not empty.waits(STANDARD)


def test_a_cleared_lane_gives_everything_back_once():
    waiting = lane(job("x", service_class=BACKGROUND), job("y"))

    assert sorted(names(waiting.clear())) == ["x", "y"]
    assert (len(waiting), waiting.cost, waiting.clear()) == (0, 0, [])


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 10), st.sampled_from(ServiceClass), st.booleans()))
)
def test_cost_and_length_are_those_of_what_is_in_it(steps):
    waiting, inside = Lane("a"), {}
    for cost, due, service_class, take in steps:
        if take and inside:
            taken = waiting.pop_head() if cost % 2 else waiting.pop_next()
            del inside[taken.id]
        else:
            added = job(cost=cost, due=due, service_class=service_class, arrived=due)
            waiting.add(added)
            inside[added.id] = added
        assert (len(waiting), waiting.cost) == (len(inside), sum(j.cost for j in inside.values()))
        assert waiting.oldest_arrival() == min((j.arrived for j in inside.values()), default=math.inf)
        assert (waiting.head().due if inside else None) == min((j.due for j in inside.values()), default=None)
