import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.service import ServiceCurve

RNG = np.random.default_rng(7)
COSTS = RNG.integers(16, 2048, 4000)
SECONDS = (0.004 + COSTS * 2e-5) * RNG.lognormal(0, 0.1, 4000)


def test_the_mean_is_what_batches_took():
    curve = ServiceCurve.fit(COSTS, SECONDS)
    for cost in (32, 200, 1500):
        assert float(curve.mean(cost)) == pytest.approx(0.004 + cost * 2e-5, rel=0.1)


def test_what_is_drawn_has_the_tail_that_was_seen():
    stalls = SECONDS.copy()
    stalls[::100] += 0.5
    curve = ServiceCurve.fit(COSTS, stalls)
    rng = np.random.default_rng(1)
    drawn = np.array([curve.draw(int(cost), rng) for cost in COSTS])
    for share in (0.5, 0.95, 0.995):
        assert np.quantile(drawn, share) == pytest.approx(np.quantile(stalls, share), rel=0.15)


def test_the_same_seed_draws_the_same():
    curve = ServiceCurve.fit(COSTS, SECONDS)
    first, again = ([curve.draw(100, np.random.default_rng(3)) for _ in range(5)] for _ in range(2))
    assert first == again


def test_beyond_what_was_seen_it_grows_in_proportion_and_says_so():
    curve = ServiceCurve.fit([100], [0.1])
    assert float(curve.mean(1000)) == pytest.approx(1.0)
    assert float(curve.mean(1)) == pytest.approx(0.1)
    assert curve.known(150) and not curve.known(1000)


def test_a_faster_device_takes_less():
    curve = ServiceCurve.fit(COSTS, SECONDS)
    assert float(curve.faster(2.0).mean(500)) == pytest.approx(float(curve.mean(500)) / 2)


@given(st.lists(st.tuples(st.integers(1, 10_000), st.floats(1e-4, 10)), min_size=1, max_size=60))
def test_it_never_falls_with_cost(readings):
    costs, seconds = zip(*readings, strict=True)
    curve = ServiceCurve.fit(np.array(costs), np.array(seconds))
    means = curve.mean(np.arange(1, 12_000, 37, dtype=np.float64))
    assert (np.diff(means) >= -1e-12).all()
