import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.service import ServiceCurve
from replay.twin.timing import Seen

RNG = np.random.default_rng(7)
COSTS = RNG.integers(16, 2048, 4000)
SECONDS = (0.004 + COSTS * 2e-5) * RNG.lognormal(0, 0.1, 4000)


def test_the_mean_is_what_batches_took():
    curve = ServiceCurve.fit(COSTS, SECONDS)
    for cost in (32, 200, 1500):
        assert float(curve.usual(cost)) == pytest.approx(0.004 + cost * 2e-5, rel=0.1)


def test_what_is_drawn_has_the_tail_that_was_seen():
    stalls = SECONDS.copy()
    stalls[::100] += 0.5
    curve = ServiceCurve.fit(COSTS, stalls)
    rng, seen = random.Random(1), Seen(curve)
    drawn = np.array([seen.batch(int(cost), rng) for cost in COSTS])
    for share in (0.5, 0.95, 0.995):
        assert np.quantile(drawn, share) == pytest.approx(np.quantile(stalls, share), rel=0.15)


def test_small_batches_scatter_as_small_ones_did_though_they_were_few():
    costs = np.repeat([20, 22, 2000], [12, 12, 400])
    seconds = np.where(costs < 100, RNG.choice([0.01, 0.03], 424), 0.5)
    curve = ServiceCurve.fit(costs, seconds)
    assert curve.scatter[0].max() > 1.3 and curve.scatter[-1] == pytest.approx(1.0)


def test_beyond_what_was_seen_it_grows_as_it_did():
    curve = ServiceCurve.fit(COSTS[COSTS < 200], SECONDS[COSTS < 200])
    assert float(curve.usual(2000)) == pytest.approx(0.004 + 2000 * 2e-5, rel=0.15)
    one = ServiceCurve.fit([100], [0.1])
    assert float(one.usual(1000)) == pytest.approx(1.0) and float(one.usual(1)) == pytest.approx(0.1)
    flat = ServiceCurve.fit([10, 100, 1000], [0.3, 0.2, 0.1])
    assert float(flat.usual(5000)) == pytest.approx(float(flat.usual(10)))


@given(st.lists(st.tuples(st.integers(1, 10_000), st.floats(1e-4, 10)), min_size=1, max_size=60))
def test_it_never_falls_with_cost(readings):
    costs, seconds = zip(*readings, strict=True)
    curve = ServiceCurve.fit(np.array(costs), np.array(seconds))
    means = curve.usual(np.arange(1, 12_000, 37, dtype=np.float64))
    assert (np.diff(means) >= -1e-12).all()
