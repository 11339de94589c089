from __future__ import annotations

import math

from web.console.rings import MINUTES, SECONDS, Ring, Series


def test_a_ring_keeps_the_last_samples_and_no_more():
    ring = Ring(3, 2)
    for n in range(5):
        ring.add(float(n), (n, n * 10))

    assert ring.columns(-1.0) == [[2.0, 3.0, 4.0], [2.0, 3.0, 4.0], [20.0, 30.0, 40.0]]
    assert len(ring) == 3
    assert ring.newest == 4.0


def test_only_what_came_later_is_told():
    ring = Ring(3, 1)
    for n in range(5):
        ring.add(float(n), (n,))

    assert ring.columns(3.0) == [[4.0], [4.0]]
    assert ring.columns(9.0) == [[], []]


def test_what_nobody_knows_is_none():
    ring = Ring(3, 1)
    ring.add(1.0, (math.nan,))

    assert ring.columns(0.0) == [[1.0], [None]]


def test_no_line_is_drawn_over_a_pause():
    series = Series(1)
    series.second(100.0, (1,))
    series.second(130.0, (2,))

    assert series.fine.columns(0.0) == [[100.0, 101.0, 130.0], [1.0, None, 2.0]]


def test_a_day_of_looking_takes_as_much_memory_as_ten_minutes_and_a_day_of_minutes():
    series = Series(8)
    for second in range(2000):
        series.second(float(second), (0,) * 8)
    for minute in range(2000):
        series.minute(minute * 60.0, (0,) * 8)

    assert len(series.fine) == SECONDS
    assert len(series.coarse) == MINUTES
