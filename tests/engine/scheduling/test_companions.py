"""Which unit is expected after which: learned from sessions, faded, and bounded."""

from __future__ import annotations

import pytest

from engine.scheduling import companions
from engine.scheduling.companions import Companions


def play(known: Companions, session: str, *uses: tuple[float, str]) -> list[list[str]]:
    return [known.on_request(session, unit, at) for at, unit in uses]


def pairs(known: Companions, count: int, first: str = "a", second: str = "b", start: float = 0.0) -> None:
    for number in range(count):
        at = start + 100.0 * number
        play(known, f"{first}{second}{number}", (at, first), (at + 5, second))


@pytest.mark.parametrize(("seen", "expected"), [(2, []), (3, ["b"]), (10, ["b"])])
def test_what_followed_three_times_is_expected(seen, expected):
    known = Companions()
    pairs(known, seen)

    assert known.on_request("new", "a", 100.0 * seen) == expected


def test_what_followed_less_than_half_the_time_is_not():
    known = Companions()
    pairs(known, 4)
    for number in range(5):
        known.on_request(f"alone{number}", "a", 400.0 + number)

    assert known.on_request("new", "a", 500.0) == []


def test_what_comes_later_than_its_time_or_in_another_session_did_not_follow():
    known = Companions()
    for number in range(5):
        at = 100.0 * number
        play(known, f"late{number}", (at, "a"), (at + 30.1, "b"))
        play(known, f"one{number}", (at, "c"))
        play(known, f"two{number}", (at + 1, "d"))

    assert known.on_request("new", "a", 500.0) == known.on_request("newer", "c", 500.0) == []


def test_many_requests_in_a_row_are_one_use():
    known = Companions()
    for number in range(3):
        at = 100.0 * number
        play(known, f"s{number}", *[(at + n, "a") for n in range(20)], (at + 20, "b"), (at + 21, "b"))

    assert known.on_request("new", "a", 500.0) == ["b"]


def test_a_single_session_that_alternates_is_learned_from():
    known = Companions()
    told = play(known, "s", *[(2.0 * n, "ab"[n % 2]) for n in range(12)])

    assert told[0] == told[1] == [] and told[-2:] == [["b"], ["a"]]


def test_what_was_long_ago_counts_for_less():
    known = Companions()
    pairs(known, 3)

    assert known.on_request("soon", "a", 400.0) == ["b"]
    assert known.on_request("later", "a", 3 * companions.HALF_LIFE) == []


def test_several_may_be_expected_and_what_is_gone_is_not():
    known = Companions()
    for number in range(4):
        at = 100.0 * number
        play(known, f"s{number}", (at, "a"), (at + 1, "b"), (at + 2, "c"))
    assert known.on_request("new", "a", 500.0) == ["b", "c"]

    known.forget("b")

    assert known.on_request("newer", "a", 600.0) == ["c"]


def test_sessions_are_bounded_and_the_least_recent_is_forgotten(monkeypatch):
    monkeypatch.setattr(companions, "MOST_SESSIONS", 3)
    known = Companions()
    for name in "wxyz":
        known.on_request(name, "a", 0.0)
    assert len(known) == 3
    known.on_request("x", "b", 1.0)  # it was remembered, and is the most recent one now
    known.on_request("w", "b", 1.0)  # it was forgotten
    assert len(known) == 3

    follows = known._follows["a"]["b"].now(1.0)
    assert follows == 1.0
