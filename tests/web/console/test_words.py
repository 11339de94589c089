from __future__ import annotations

import math

import pytest

from web.console import words


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "n/a"),
        (math.inf, "n/a"),
        (0, "0 ms"),
        (0.0012, "1.2 ms"),
        (0.047, "47 ms"),
        (3.21, "3.2 s"),
        (42, "42 s"),
        (600, "10 min"),
        (10000, "3 h"),
        (-0.5, "-500 ms"),
    ],
)
def test_a_duration_has_two_digits_and_a_unit(seconds, said):
    assert words.span(seconds) == said


def test_bytes_are_exact_where_they_are_to_be():
    assert words.exact(1234567) == "1\u202f234\u202f567 B"
    assert words.exact(None) == "n/a"


AGO = [(3, "just now"), (60, "1 min ago"), (7199, "119 min ago"), (None, "n/a")]


@pytest.mark.parametrize(("seconds", "said"), AGO)
def test_how_long_ago_is_told_coarsely(seconds, said):
    assert words.ago(seconds) == said


def test_what_nobody_knows_is_never_an_exception():
    for say in (
        words.size,
        words.exact,
        words.whole,
        words.span,
        words.ago,
        words.rate,
        words.share,
        words.clock,
    ):
        assert say(None) == "n/a"
