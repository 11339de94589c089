"""How long a step lasts, and which rate is tried next."""

from __future__ import annotations

import numpy as np
import pytest

from engine.requests import ServiceClass
from engine.scheduling.rules import SchedulingRules
from replay.ramp import Dwell, Ramp
from replay.steps import Step
from replay.sweeps import dwell_of
from tests.replay.small import server, traffic


@pytest.mark.parametrize(
    ("rate", "near", "seconds"),
    [
        (1, True, 180),
        (50, True, 180),
        (100, True, 100),  # 10,000 requests have come by then
        (1000, True, 45),
        (1000, False, 20),
        (1, False, 20),
    ],
)
def test_a_step_near_the_knee_lasts_until_time_or_requests_are_enough(rate, near, seconds):
    assert Dwell(far=20, near=180, many=10_000, least=45).seconds(rate, near, 1.0) == seconds


@pytest.mark.parametrize(("target", "least"), [(1.0, 45), (5.0, 100), (60.0, 180)])
def test_slow_targets_need_long_steps_whatever_comes(target, least):
    rules = SchedulingRules(targets=dict.fromkeys(ServiceClass, target))
    on = server(scheduling=rules)
    assert dwell_of(on, traffic(on)).seconds(10_000, True, 1.0) == least


def step(rate: float, seconds: float, latency: float) -> Step:
    count = int(rate * seconds)
    return Step(rate, 0.0, seconds, np.arange(count) / rate, np.full(count, latency))


def test_a_step_that_fails_in_a_short_window_is_run_again_in_a_long_one():
    ramp = Ramp(10.0, 1.0, Dwell(far=20, near=60))
    assert ramp.next() == (10.0, 20.0)
    ramp.observe(step(10.0, 20.0, 9.0))
    assert ramp.next() == (10.0, 60.0) and not ramp.steps


def test_a_step_that_was_lost_before_its_end_is_not_run_again_for_being_short():
    ramp = Ramp(10.0, 1.0, Dwell(far=20, near=60))
    ramp.next()
    ramp.observe(step(10.0, 20.0, 0.7))
    rate, seconds = ramp.next() or (0.0, 0.0)
    assert seconds == 60  # over half the target: the knee is near

    ramp.observe(step(rate, 5.0, 9.0))

    again, _ = ramp.next() or (0.0, 0.0)
    assert again > rate and len(ramp.steps) == 2
