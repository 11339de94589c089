"""What is learned of run times: never falling with cost, and its inverse agrees with it."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.scheduling.curve import RuntimeCurve

readings = st.lists(st.tuples(st.integers(1, 100_000), st.floats(1e-5, 10)), min_size=1, max_size=60)


def learned(*pairs):
    curve = RuntimeCurve()
    for cost, seconds in pairs:
        curve.observe(cost, seconds)
    return curve


def test_while_nothing_is_known_nothing_is_predicted_and_nothing_is_bounded():
    assert not RuntimeCurve()
    assert (RuntimeCurve().seconds(100), RuntimeCurve().cost_within(0.1)) == (0.0, math.inf)


def test_between_what_was_seen_it_is_linear_below_flat_above_in_proportion():
    curve = learned((100, 0.1), (1000, 0.4))

    assert curve.seconds(550) == pytest.approx(0.25)
    assert curve.seconds(1) == pytest.approx(0.1)
    assert curve.seconds(2000) == pytest.approx(0.8)


def test_the_inverse_is_in_proportion_below_and_linear_between():
    curve = learned((100, 0.1), (1000, 0.4))

    assert curve.cost_within(0.05) == pytest.approx(50)
    assert curve.cost_within(0.25) == pytest.approx(550)
    assert curve.cost_within(4.0) == pytest.approx(10_000)


def test_twice_the_largest_that_ran_in_time_may_be_tried():
    curve = learned((10, 0.020))

    assert curve.cost_within(0.021) == pytest.approx(20)
    assert curve.cost_within(0.019) == pytest.approx(9.5)


def test_a_reading_that_falls_is_averaged_with_those_above():
    curve = learned((100, 0.3), (200, 0.1), (400, 0.5))

    assert curve.seconds(100) == curve.seconds(200) == pytest.approx(0.2)
    assert curve.seconds(400) == pytest.approx(0.5)


def test_newer_readings_count_more():
    curve = learned(*[(100, 0.1)] * 50, *[(100, 0.5)] * 20)

    assert curve.seconds(100) == pytest.approx(0.5, rel=0.02)


@settings(max_examples=150, deadline=None)
@given(readings, st.integers(1, 200_000), st.integers(1, 200_000))
def test_it_never_falls_with_cost(pairs, one, other):
    curve = learned(*pairs)

    assert curve.seconds(min(one, other)) <= curve.seconds(max(one, other)) + 1e-12


@settings(max_examples=150, deadline=None)
@given(readings, st.integers(1, 200_000))
def test_what_runs_so_long_fits_in_so_long(pairs, cost):
    curve = learned(*pairs)

    assert curve.cost_within(curve.seconds(cost) * (1 + 1e-9)) >= cost * (1 - 1e-6)


@settings(max_examples=150, deadline=None)
@given(readings, st.floats(1e-6, 20))
def test_what_fits_is_predicted_to_run_no_longer_unless_it_was_never_tried(pairs, seconds):
    curve = learned(*pairs)
    known = [mean for mean, _, _ in curve.points().values()]

    cost = curve.cost_within(seconds)

    if min(known) <= cost:
        assert curve.seconds(min(cost, max(known))) <= seconds * (1 + 1e-9)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([1, 8, 64]), st.floats(0.1, 10)), min_size=1, max_size=40))
@example([(1, 5.0), (8, 6.0), (64, 7.0), (8, 0.1), (8, 9.0), (8, 90.0)])
def test_what_is_kept_up_reading_by_reading_is_what_a_fit_of_all_of_them_finds(pairs):
    curve = RuntimeCurve()
    for cost, seconds in pairs:
        curve.observe(cost, seconds)
        fitted = RuntimeCurve()
        fitted.learn(curve.points())
        assert [curve.seconds(c) for c in (1, 5, 8, 30, 64)] == [fitted.seconds(c) for c in (1, 5, 8, 30, 64)]


@settings(max_examples=50, deadline=None)
@given(readings, st.integers(1, 200_000))
def test_what_was_learned_is_plain_data_and_comes_back_the_same(pairs, cost):
    import json

    curve, again = learned(*pairs), RuntimeCurve()
    again.learn(json.loads(json.dumps(curve.points())))

    assert again.seconds(cost) == curve.seconds(cost)
    assert again.points() == curve.points()
