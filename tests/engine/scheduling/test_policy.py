"""Which lane runs next: class, then share, then who is about to be late."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from engine.scheduling.policy import Candidate, FairShare
from tests.engine.scheduling.jobs import BACKGROUND, INTERACTIVE, STANDARD

FAR = 1e9


def candidate(unit, service_class=STANDARD, due=FAR, seconds=0.1):
    return Candidate(unit, service_class, due, seconds)


def run(share, candidates, weights=None, steps=1000, now=0.0):
    """Let `share` choose again and again; the chosen unit runs for its seconds."""
    chosen = []
    for _ in range(steps):
        one = share.choose(candidates(now) if callable(candidates) else candidates, now)
        share.charge(one.unit, one.service_class, one.seconds, (weights or {}).get(one.unit, 1.0), now)
        now += one.seconds
        chosen.append(one)
    return chosen


def test_there_is_no_choice_among_none():
    assert FairShare().choose([], 0.0) is None


def test_the_more_urgent_class_goes_first_whatever_it_has_had():
    share = FairShare()
    share.charge("i", INTERACTIVE, 1000.0, 1.0, 0.0)

    assert share.choose([candidate("s"), candidate("i", INTERACTIVE)], 0.0).unit == "i"


@pytest.mark.parametrize("weights", [(3.0, 1.0), (1.0, 1.0), (1.0, 5.0)])
@pytest.mark.parametrize("seconds", [(0.1, 0.1), (0.1, 0.02), (0.01, 0.2)])
def test_saturated_models_share_device_seconds_by_weight(weights, seconds):
    both = [candidate("a", seconds=seconds[0]), candidate("b", seconds=seconds[1])]

    chosen = run(FairShare(), both, dict(zip("ab", weights, strict=True)))

    had = Counter()
    for one in chosen[100:]:
        had[one.unit] += one.seconds
    assert had["a"] / had.total() == pytest.approx(weights[0] / sum(weights), rel=0.05)


def test_three_to_one_holds_over_any_hundred_batches():
    chosen = run(FairShare(), [candidate("a"), candidate("b")], {"a": 3.0})

    for begin in range(0, 900):
        mine = sum(one.unit == "a" for one in chosen[begin : begin + 100])
        assert mine / 100 == pytest.approx(0.75, rel=0.05)


def test_a_wrong_prediction_is_corrected_when_the_batch_is_over():
    share, had, now = FairShare(), Counter(), 0.0
    really = {"a": 0.3, "b": 0.1}  # both were predicted to take 0.1
    for _ in range(1000):
        one = share.choose([candidate("a"), candidate("b")], now)
        share.charge(one.unit, STANDARD, one.seconds, 1.0, now)
        now += really[one.unit]
        share.charge(one.unit, STANDARD, really[one.unit] - one.seconds, 1.0, now)
        had[one.unit] += really[one.unit]

    assert had["a"] == pytest.approx(had["b"], rel=0.05)


def test_a_model_that_trickles_waits_for_one_batch_at_most():
    share, rng, waits, now, arrived = FairShare(), random.Random(1), [], 0.0, None
    share.wake("a", STANDARD)
    for step in range(2000):
        if arrived is None and rng.random() < 0.2:
            arrived = step
            share.wake("b", STANDARD)
        lanes = [candidate("a", seconds=0.5)] + (
            [candidate("b", seconds=0.01)] if arrived is not None else []
        )
        one = share.choose(lanes, now)
        share.charge(one.unit, STANDARD, one.seconds, 1.0, now)
        now += one.seconds
        if one.unit == "b":
            waits.append(step - arrived)
            arrived = None

    assert len(waits) > 200 and max(waits) <= 1


def test_idling_earns_nothing():
    share = FairShare()
    share.wake("a", STANDARD)
    share.wake("b", STANDARD)
    run(share, [candidate("a")], steps=1000)
    share.wake("b", STANDARD)  # 100 s later

    chosen = run(share, [candidate("a"), candidate("b")], steps=100)

    assert 45 <= sum(one.unit == "a" for one in chosen) <= 55


def test_who_stood_behind_a_more_urgent_class_has_earned_nothing_against_its_peers():
    share = FairShare()
    share.wake("old", BACKGROUND)
    share.wake("i", INTERACTIVE)
    run(share, [candidate("old", BACKGROUND), candidate("i", INTERACTIVE)], steps=1000)
    share.wake("new", BACKGROUND)

    chosen = run(share, [candidate("old", BACKGROUND), candidate("new", BACKGROUND)], steps=100)

    assert 45 <= sum(one.unit == "new" for one in chosen) <= 55


@pytest.mark.parametrize("floor", [0.05, 0.2])
def test_a_class_that_waits_has_its_floor(floor):
    share = FairShare({BACKGROUND: floor})

    chosen = run(share, [candidate("i", INTERACTIVE), candidate("b", BACKGROUND)], steps=3000)

    had = sum(one.unit == "b" for one in chosen[1000:]) / 2000
    assert had == pytest.approx(floor, rel=0.1)


def test_without_a_floor_it_takes_what_is_left():
    chosen = run(FairShare(), [candidate("i", INTERACTIVE), candidate("b", BACKGROUND)])

    assert {one.unit for one in chosen} == {"i"}


def test_who_can_only_be_in_time_by_going_now_goes_first():
    share = FairShare()
    share.charge("b", STANDARD, 0.05, 1.0, 0.0)
    share.wake("a", STANDARD)

    assert share.choose([candidate("a"), candidate("b", due=1.0)], 0.0).unit == "a"
    assert share.choose([candidate("a"), candidate("b", due=1.0)], 0.95).unit == "b"
    assert share.choose([candidate("a"), candidate("b", due=1.0)], 1.05).unit == "a"  # late: it has its share


def test_hurry_does_not_cross_classes():
    hurried = [candidate("i", INTERACTIVE), candidate("s", due=0.01)]

    assert FairShare().choose(hurried, 0.0).unit == "i"


def test_one_that_is_always_in_a_hurry_takes_no_more_than_its_share():
    share = FairShare()

    chosen = run(share, lambda now: [candidate("a", due=now + 0.05), candidate("b")], steps=1000)

    assert sum(one.unit == "a" for one in chosen) == pytest.approx(500, abs=10)
