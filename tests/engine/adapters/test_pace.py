from __future__ import annotations

import pytest

from engine.adapters.generation.pace import UNKNOWN_ROWS, Pace


def measured(*steps: tuple[int, float]) -> Pace:
    pace = Pace()
    for rows, seconds in steps:
        pace.observe(rows, seconds)
    return pace


def test_before_anything_was_measured_a_step_is_small():
    assert Pace().rows_within(10.0, 1000) == UNKNOWN_ROWS
    assert Pace().rows_within(10.0, 3) == 3


def test_two_sizes_of_step_make_a_line():
    pace = measured(*[(1, 0.021), (101, 0.121)] * 20)

    assert pace.seconds(51) == pytest.approx(0.071)
    assert pace.rows_within(0.0713, 1000) == 51


def test_one_size_of_step_is_taken_for_proportional_and_never_less():
    pace = measured((4, 0.04), (4, 0.04))

    assert pace.seconds(8) == pytest.approx(0.08)
    assert pace.seconds(1) == pytest.approx(0.04)


def test_a_slope_is_remembered_through_many_steps_of_one_size():
    pace = measured((1, 0.02), (101, 0.12), *[(1, 0.02)] * 500)

    assert pace.seconds(101) == pytest.approx(0.12, rel=0.01)


def test_a_step_that_cannot_end_in_time_has_no_rows():
    pace = measured(*[(1, 0.021), (101, 0.121)] * 20)

    assert pace.rows_within(0.01, 1000) == 0
    assert pace.rows_within(9.0, 7) == 7


def test_slower_steps_are_noticed():
    pace = measured(*[(4, 0.04)] * 10, *[(4, 0.08)] * 30)

    assert pace.seconds(4) == pytest.approx(0.08, rel=0.05)
