from __future__ import annotations

import math

import pytest

from replay.twin.clock import MOST_TURNS, Clock, Seat
from replay.twin.company import Company


class Told:
    """Writes down what it is to do, and when it was woken."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.wake_at = clock, math.inf
        self.done: list[tuple[float, object]] = []

    def wake(self) -> None:
        self.wake_at = math.inf
        self.done.append((self.clock.now, "woken"))

    def perform(self, effects) -> None:
        self.done += [(self.clock.now, effect) for effect in effects]


def seated() -> tuple[Clock, Told, Seat[object]]:
    clock = Clock()
    told = Told(clock)
    seat: Seat[object] = Seat(clock, told)
    clock.seat(seat)
    return clock, told, seat


def say(word, now):
    return [word]


def test_what_is_due_first_happens_first_and_at_one_moment_in_the_order_it_was_asked_for():
    clock, told, seat = seated()
    for when, word in [(2.0, "c"), (1.0, "a"), (1.0, "b")]:
        clock.at(when, seat.tell, say, word)

    clock.run()

    assert told.done == [(1.0, "a"), (1.0, "b"), (2.0, "c")]


def test_a_seat_is_woken_when_it_asked_to_be():
    clock, told, seat = seated()
    told.wake_at = 3.0
    seat.tell(say, "hello")

    clock.run()

    assert told.done == [(0.0, "hello"), (3.0, "woken")]


def test_a_message_to_oneself_comes_before_what_others_do_at_that_moment():
    clock, told, seat = seated()

    def twice(now):
        seat.tell(say, "mine")
        return ["first"]

    seat.tell(twice)
    clock.soon(lambda: told.done.append((clock.now, "other")))

    clock.run()

    assert [word for _, word in told.done] == ["first", "mine", "other"]


def test_a_stopped_clock_does_no_more():
    clock, told, seat = seated()
    clock.at(1.0, seat.tell, say, "a")
    clock.at(1.0, lambda: setattr(clock, "stopped", True))
    clock.at(2.0, seat.tell, say, "b")

    clock.run()

    assert told.done == [(1.0, "a")]


def test_time_that_never_passes_is_a_bug():
    clock, _, seat = seated()

    def again(now):
        clock.soon(lambda: seat.tell(again))
        return []

    seat.tell(again)
    with pytest.raises(AssertionError, match="no time passes"):
        clock.run()
    assert MOST_TURNS > 1000


def test_company_is_whoever_was_there_at_any_time():
    company = Company()
    first = company.enter("a")
    elsewhere = company.enter("b")
    second = company.enter("a")

    assert not company.leave("a", second) and not company.leave("a", first)
    assert company.leave("b", elsewhere) and company.leave("a", company.enter("a"))
