"""Rates, concurrency and back-off hold whatever the traffic; time is an argument."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.access.limits import FORGET, FREE_TRIES, LONGEST_WAIT, Backoff, Bucket, Gate
from engine.access.principals import LOCAL, Limits, Scope, key

gaps = st.lists(st.floats(0, 5), min_size=1, max_size=60)


def limited(**limits: object):
    return key("abcd", "k", [Scope.CALL], 0.0, limits=Limits(**limits))


@given(st.floats(0.1, 50), st.integers(1, 20), gaps)
def test_a_bucket_never_gives_more_than_its_burst_and_its_rate(rate, burst, waits):
    bucket, now, taken = Bucket(rate, burst, float(burst), 0.0), 0.0, []
    for wait in waits:
        now += wait
        if not bucket.take(now):
            taken.append(now)

    for i, since in enumerate(taken):
        for j, until in enumerate(taken[i:], 1):
            assert j <= burst + rate * (until - since) + 1e-6


@given(st.floats(0.1, 50), st.integers(1, 20), gaps)
def test_who_waits_as_long_as_told_is_let_in(rate, burst, waits):
    bucket, now = Bucket(rate, burst, float(burst), 0.0), 0.0
    for wait in waits:
        now += wait
        if told := bucket.take(now):
            assert 0 < told <= 1 / rate + 1e-9
            assert bucket.take(now + told + 1e-9) == 0.0
            now += told + 1e-9


def test_a_clock_that_stands_still_or_goes_back_gives_nothing():
    bucket = Bucket(1.0, 1, 1.0, 10.0)

    assert bucket.take(10.0) == 0.0
    assert bucket.take(10.0) == 1.0
    assert bucket.take(5.0) == 1.0


@given(st.integers(1, 5), st.lists(st.booleans(), max_size=60))
def test_no_more_are_in_flight_than_allowed_and_in_the_end_none(most, moves):
    gate, who, running = Gate(), limited(concurrency=most), 0
    for arrives in moves:
        if arrives:
            let_in = gate.enter(who, 0.0) == 0.0
            assert let_in is (running < most)
            running += let_in
        elif running:
            gate.leave(who)
            running -= 1
        assert gate.in_flight(who) == running <= most
    for _ in range(running):
        gate.leave(who)
    assert gate.in_flight(who) == 0 and gate._in_flight == {}


def test_a_request_that_is_refused_for_concurrency_costs_no_token():
    gate, who = Gate(), limited(rate=1.0, burst=2, concurrency=1)

    assert gate.enter(who, 0.0) == 0.0
    assert gate.enter(who, 0.0) > 0
    gate.leave(who)
    assert gate.enter(who, 0.0) == 0.0


def test_each_key_has_limits_of_its_own_and_new_limits_count_at_once():
    gate = Gate()
    one, other = limited(rate=1.0), key("efgh", "o", [Scope.CALL], 0.0, limits=Limits(1.0))

    assert gate.enter(one, 0.0) == 0.0 and gate.enter(other, 0.0) == 0.0
    assert gate.enter(one, 0.0) == 1.0
    assert gate.enter(limited(rate=2.0, burst=3), 0.0) == 0.0


def test_without_limits_everybody_comes_in():
    gate = Gate()

    assert [gate.enter(LOCAL, 0.0) for _ in range(1000)] == [0.0] * 1000


def test_mistakes_are_free_at_first_and_then_double():
    backoff, waits = Backoff(longest=60.0), []
    for _ in range(FREE_TRIES + 9):
        backoff.mistake("ann", 100.0)
        waits.append(backoff.wait("ann", 100.0))

    assert waits == [0.0] * FREE_TRIES + [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert backoff.wait("bob", 100.0) == 0.0


@given(st.lists(st.tuples(st.floats(0, 100), st.sampled_from(["ann", "bob"])), max_size=50))
def test_a_wait_only_shrinks_and_never_exceeds_the_longest(moves):
    backoff, now = Backoff(longest=30.0), 0.0
    for gap, who in moves:
        now += gap
        backoff.mistake(who, now)
        wait = backoff.wait(who, now)
        assert 0.0 <= wait <= 30.0
        assert backoff.wait(who, now + wait / 2) <= wait
        assert backoff.wait(who, now + wait + 1e-6) == 0.0


def test_being_right_forgets_and_so_does_time():
    backoff = Backoff(longest=60.0)
    for who in ("ann", "bob"):
        for _ in range(10):
            backoff.mistake(who, 0.0)
    backoff.right("ann")

    assert backoff.wait("ann", 0.0) == 0.0 and backoff.wait("bob", 0.0) == 60.0
    backoff.mistake("bob", FORGET)
    assert backoff.wait("bob", FORGET) == 0.0


def test_any_number_of_names_takes_bounded_memory_and_drops_the_oldest():
    backoff = Backoff(longest=60.0, most=100)
    for number in range(1000):
        for _ in range(5):
            backoff.mistake(str(number), 0.0)

    assert len(backoff._mistakes) == 100
    assert backoff.wait("0", 0.0) == 0.0 and backoff.wait("999", 0.0) == pytest.approx(2.0)


def test_nobody_is_told_to_wait_for_years():
    bucket = Bucket(1e-12, 1, 1.0, 0.0)
    bucket.take(0.0)

    assert bucket.take(1.0) == LONGEST_WAIT
