"""Who may join the queue, and when to come back."""

from __future__ import annotations

import pytest

from engine.errors import QueueFull
from engine.scheduling.admission import Admission, Backlog, DrainRate
from engine.scheduling.rules import SchedulingRules
from tests.engine.scheduling.jobs import job

RULES = SchedulingRules(max_waiting_jobs=100, max_model_jobs=10, max_model_cost=1000, max_key_jobs=5)


def refusal(jobs, *, wait=0.0, key_jobs=0, admission=None, now=0.0, **backlog):
    gate = admission or Admission(RULES)
    waiting = Backlog(**backlog, key_jobs=lambda: key_jobs, predicted_wait=lambda: wait)
    return gate.refusal(jobs, waiting, now)


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({}, None),
        ({"waiting": 99, "lane_jobs": 9, "lane_cost": 999, "key_jobs": 9}, None),
        ({"waiting": 100}, "max_waiting_jobs"),
        ({"lane_jobs": 10}, "max_model_jobs"),
        ({"lane_cost": 1000}, "max_model_cost"),
        ({"wait": 2.0}, None),
    ],
)
def test_the_limits_are_on_what_is_there_before(state, told):
    refused = refusal([job(deadline=2.5)], **state)

    assert (refused is None) == (told is None)
    if told:
        assert isinstance(refused, QueueFull) and told in refused.message and refused.retry_after == 1.0


def test_a_request_larger_than_every_limit_is_let_in_when_the_queue_is_below_it():
    assert refusal([job() for _ in range(1000)], waiting=99, lane_jobs=9, lane_cost=999) is None


def test_nothing_is_never_refused():
    assert refusal([], waiting=1000, lane_jobs=1000) is None


def test_who_cannot_be_in_time_is_told_when_it_could():
    refused = refusal([job(deadline=9.0), job(deadline=2.0)], wait=5.0, now=1.0)

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
    admission = Admission(RULES)
    for step in range(400):
        admission.finished("a", 25, step / 4)

    refused = refusal([job()], lane_jobs=10, lane_cost=lane_cost, admission=admission, now=99.75)

    assert refused.retry_after == pytest.approx(seconds, rel=0.1)


def test_one_caller_may_have_the_whole_lane_until_there_is_another():
    gate = Admission(RULES)
    state = {"lane_jobs": 9, "key_jobs": 9, "admission": gate}

    assert refusal([job(principal="a")], **state) is None
    assert refusal([job(principal="b")], lane_jobs=9, key_jobs=4, admission=gate) is None
    refused = refusal([job(principal="a")], **state)
    assert isinstance(refused, QueueFull) and "max_key_jobs" in refused.message


def test_the_predicted_wait_is_asked_for_only_where_a_deadline_makes_it_matter():
    def asked():
        raise AssertionError

    assert Admission(RULES).refusal([job()], Backlog(predicted_wait=asked), 0.0) is None
