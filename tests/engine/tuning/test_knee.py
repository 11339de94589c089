from __future__ import annotations

import pytest

from engine.tuning.knee import Point, fixed, knee


def test_the_smallest_batch_with_nearly_the_best_throughput_is_chosen():
    curve = [Point(64, 0.020), Point(128, 0.024), Point(256, 0.040), Point(512, 0.079), Point(1024, 0.170)]

    assert knee(curve).cost == 256


def test_the_fixed_part_of_a_batch_is_what_a_line_leaves_at_zero():
    assert fixed([Point(200, 0.030), Point(100, 0.020)]) == pytest.approx(0.010)
    assert fixed([Point(100, 0.010), Point(200, 0.030)]) == 0.0
    assert fixed([Point(100, 0.010)]) == 0.0
