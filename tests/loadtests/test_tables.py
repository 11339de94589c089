from __future__ import annotations

import math

from loadtests.tables import percentile, table, verdict


def test_columns_are_as_wide_as_they_need():
    assert table(["a", "seconds"], [["long name", "1"]]) == "a          seconds\nlong name        1"


def test_a_percentile_is_a_value_that_was_seen():
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile(range(100), 0.99) == 99
    assert math.isnan(percentile([], 0.5))


def test_what_was_missed_is_said_and_fails(capsys):
    assert verdict([]) == 0
    assert verdict(["p99 is 3 s (goal 2)"]) == 1
    assert "missed: p99 is 3 s (goal 2)" in capsys.readouterr().out
