from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from engine.requests import ServiceClass
from replay.groups import FEWEST, first_to_fail, groups, quantile, tripwire
from replay.trace import Floats
from replay.twin.results import Results
from replay.twin.twin import simulate
from tests.replay.small import server, traffic

KEY = ("a", ServiceClass.STANDARD)


def ran(latency: list[float]):
    """As many requests as there are latencies."""
    on = server()
    sent = traffic(on, rate=1, seconds=len(latency) * 3, a=1)
    first = replace(sent, trace=sent.trace.take(np.arange(len(latency))))
    return on, first, with_columns(simulate(on, first), latency=np.array(latency))


def with_columns(results: Results, **columns: Floats) -> Results:
    return replace(results, answers=replace(results.answers, **columns))


@pytest.mark.parametrize(("late", "holds"), [(1, True), (2, False)])
def test_of_a_hundred_one_may_be_late(late, holds):
    on, _, results = ran([0.1] * (100 - late) + [9.0] * late)
    (group,) = groups(results, on)
    assert group.holds is holds and group.p99 == (0.1 if holds else 9.0)
    assert group.within == pytest.approx(1 - late / 100)


@pytest.mark.parametrize(("late", "trips"), [(1, False), (2, True)])
def test_a_tripwire_allows_what_a_p99_allows(late, trips):
    on, sent, _ = ran([0.1] * 100)
    wire = tripwire(sent, on, 0.0)
    ended = [wire.ended(KEY, 1.0, latency) for latency in [0.1] * (100 - late) + [9.0] * late]
    assert any(ended) is trips and wire.tripped == (KEY if trips else None)


def test_what_came_before_it_counts_trips_nothing():
    on, sent, _ = ran([0.1] * 100)
    wire = tripwire(sent, on, 50.0)
    assert not any(wire.ended(KEY, 10.0, 9.0) for _ in range(50))
    assert not wire.ended(("other", ServiceClass.STANDARD), 60.0, 9.0)


def test_too_few_are_not_judged():
    on, sent, results = ran([9.0] * (FEWEST - 1))
    assert first_to_fail(groups(results, on)) is None
    assert not any(tripwire(sent, on, 0.0).ended(KEY, 1.0, 9.0) for _ in range(99))


def test_no_answer_is_the_slowest_there_is():
    assert math.isinf(quantile(np.array([0.1, math.inf]), 0.99))
    on, _, results = ran([0.1] * 90 + [math.inf] * 10)
    (group,) = groups(results, on)
    assert group.refused == pytest.approx(0.1) and group.stage == "refused"
    assert "10.0% were not answered" in str(group)


def test_the_stage_is_where_the_late_ones_spent_their_time():
    on, _, results = ran([0.1] * 90 + [9.0] * 10)
    queue = np.array([0.0] * 90 + [8.0] * 10)
    (group,) = groups(with_columns(results, queue=queue, run=np.full(100, 0.5)), on)
    assert group.stage == "queue" and str(group).endswith("(queue)")
