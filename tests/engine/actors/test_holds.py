"""How long a request may wait before any of it runs."""

from __future__ import annotations

import math

from engine.actors.holds import Holds


def test_those_whose_time_is_up_are_taken_once():
    holds = Holds(10.0)
    holds.add("a", 0.0)
    holds.add("b", 5.0)

    assert (holds.due_at(), holds.take_due(9.9)) == (10.0, [])
    assert (holds.take_due(10.0), holds.take_due(14.9), holds.take_due(15.0)) == (["a"], [], ["b"])
    assert holds.due_at() == math.inf


def test_one_that_came_earlier_and_is_added_later_is_due_earlier():
    """Preparing takes its time: requests are queued in another order than they came in."""
    holds = Holds(10.0)
    holds.add("quick", 8.0)
    holds.add("slow", 0.0)

    assert (holds.due_at(), holds.take_due(10.0)) == (10.0, ["slow"])


def test_what_is_over_is_not_taken_and_not_kept():
    holds = Holds(10.0)
    for number in range(10_000):
        holds.add(number, float(number) / 1000)
        if number != 7:
            holds.drop(number)

    assert len(holds) < 100
    assert holds.take_due(1e9) == [7]
