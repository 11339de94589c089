import math

import numpy as np
import pytest

from replay.steps import Step, upper_quantile


def step(arrived, latency, end=100.0) -> Step:
    arrived, latency = np.asarray(arrived, dtype=np.float64), np.asarray(latency, dtype=np.float64)
    return Step(len(arrived) / end, 0.0, end, arrived, latency)


def even(count=1000, end=100.0):
    return np.linspace(0, end, count, endpoint=False)


@pytest.mark.parametrize(("count", "rank"), [(1000, 996), (100, 100), (10, 10)])
def test_the_bound_of_the_tail_is_an_order_statistic_above_it(count, rank):
    assert upper_quantile(np.arange(1, count + 1, dtype=np.float64), 0.99) == rank


def test_nothing_has_no_tail():
    assert upper_quantile(np.array([]), 0.99) == math.inf


def test_a_steady_step_is_stable_and_serves_what_is_offered():
    steady = step(even(), np.full(1000, 0.05))
    assert steady.passes(0.1)
    assert steady.served == pytest.approx(10, rel=0.01)


def test_a_queue_that_grows_is_no_capacity_though_its_tail_is_still_within_the_target():
    growing = step(even(), np.linspace(0.05, 9, 1000))
    assert growing.p99 < 10
    assert not growing.stable(10)


def test_refused_requests_are_over_every_target():
    latency = np.full(1000, 0.05)
    latency[::50] = math.inf
    assert not step(even(), latency).passes(60)
