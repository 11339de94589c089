"""Units that are evicted and loaded again, over and over."""

from __future__ import annotations

import pytest

from engine.events import ResidencyChanged
from engine.memory.thrash import Thrash
from tests.engine.memory.desk import Desk, unloads

A, B = ("a", "d"), ("b", "d")


def test_the_third_return_in_a_minute_is_one_too_many():
    thrash = Thrash()
    told = []
    for now in (0.0, 10.0, 20.0, 30.0):
        thrash.evicted(A)
        told.append(thrash.loaded(A, now))

    assert told == [False, False, True, True]
    assert thrash.thrashing(A, 69.0) and not thrash.thrashing(A, 71.0) and not thrash.thrashing(B, 30.0)


@pytest.mark.parametrize("apart", [30.0, 30.1])
def test_returns_that_are_far_apart_are_no_thrashing(apart):
    thrash = Thrash()
    for number in range(5):
        thrash.evicted(A)
        assert thrash.loaded(A, number * apart) is (apart == 30.0 and number >= 2)


def test_a_load_that_no_eviction_went_before_is_no_return():
    thrash = Thrash()
    thrash.evicted(A)

    assert not any([thrash.loaded(A, 0.0), thrash.loaded(A, 1.0), thrash.loaded(A, 2.0)])
    assert not thrash.thrashing(A, 2.0)


def test_two_that_turn_each_other_out_are_seen():
    desk = Desk()
    changes = []
    for turn in range(4):
        desk.now = turn * 10.0
        for unit in "ab":
            changes += desk.resident(unit, 600)
            desk.now += 5.0

    loaded = [e for e in changes if isinstance(e, ResidencyChanged) and e.event == "loaded"]
    assert [e.thrash for e in loaded if e.unit == "a"] == [False, False, False, True]
    assert desk.custody.thrashing("a", "d", desk.now)


def test_what_an_operator_does_is_no_thrashing():
    desk = Desk()
    for ask in range(6):
        desk.resident("a")
        assert unloads(desk.unload("a", ask)) == [("a", "d")]
        desk.unloaded("a", "d")
    desk.resident("a")

    assert not desk.custody.thrashing("a", "d", 0.0)
