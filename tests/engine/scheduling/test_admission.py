"""Who may join the queue, and when to come back."""

from __future__ import annotations

import pytest

from engine.errors import QueueFull
from engine.scheduling.admission import Admission, DrainRate
from tests.engine.scheduling.jobs import job


def refusal(jobs, *, waiting=0, lane_jobs=0, lane_cost=0, predicted_wait=0.0, admission=None, now=0.0):
    gate = admission or Admission(max_waiting_jobs=100, max_model_jobs=10)
    return gate.refusal(
        jobs,
        waiting=waiting,
        lane_jobs=lane_jobs,
        lane_cost=lane_cost,
        predicted_wait=predicted_wait,
        now=now,
    )


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({}, None),
        ({"waiting": 99, "lane_jobs": 9}, None),
        ({"waiting": 100}, "max_waiting_jobs"),
        ({"lane_jobs": 10}, "max_model_jobs"),
        ({"predicted_wait": 2.0}, None),
    ],
)
def test_the_limits_are_on_what_is_there_before(state, told):
    refused = refusal([job(deadline=2.5)], **state)

    assert (refused is None) == (told is None)
    if told:
        assert isinstance(refused, QueueFull) and told in refused.message and refused.retry_after == 1.0


def test_a_request_larger_than_every_limit_is_let_in_when_the_queue_is_below_it():
    assert refusal([job() for _ in range(1000)], waiting=99, lane_jobs=9) is None


def test_nothing_is_never_refused():
    assert refusal([], waiting=1000, lane_jobs=1000) is None


def test_who_cannot_be_in_time_is_told_when_it_could():
    refused = refusal([job(deadline=9.0), job(deadline=2.0)], predicted_wait=5.0, now=1.0)

    assert isinstance(refused, QueueFull) and refused.retry_after == pytest.approx(4.0)


def test_the_drain_rate_settles_at_what_leaves_a_second_and_fades():
    rate = DrainRate()
    for step in range(400):
        rate.left(25, step / 4)

    assert rate.per_second(99.75) == pytest.approx(100, rel=0.05)
    assert rate.per_second(99.75 + 5) == pytest.approx(100 / 2.718, rel=0.05)
    assert DrainRate().per_second(7.0) == 0.0


@pytest.mark.parametrize(("lane_cost", "seconds"), [(1000, 1.0), (10, 0.05), (10**9, 30.0)])
def test_retry_after_is_when_a_tenth_of_the_lane_is_gone(lane_cost, seconds):
    admission = Admission(max_waiting_jobs=100, max_model_jobs=10)
    for step in range(400):
        admission.finished("a", 25, step / 4)

    refused = refusal([job()], lane_jobs=10, lane_cost=lane_cost, admission=admission, now=99.75)

    assert refused.retry_after == pytest.approx(seconds, rel=0.1)
