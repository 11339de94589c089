from __future__ import annotations

import random

import numpy as np
import pytest

from replay.service import ServiceCurve
from replay.twin.timing import Declared, Loads, Seen


def curve() -> ServiceCurve:
    rng = np.random.default_rng(0)
    costs = rng.integers(4, 512, 4000)
    seconds = (0.01 + costs * 1e-4) * rng.choice([0.9, 1.0, 1.1, 3.0], 4000, p=[0.3, 0.4, 0.28, 0.02])
    return ServiceCurve.fit(costs, seconds)


def test_drawing_without_arrays_is_drawing_from_the_curve():
    seen, rng = Seen(curve()), random.Random(1)
    for cost in (5, 40, 300, 2000):
        drawn = np.array([seen.batch(cost, rng) for _ in range(4000)])
        assert drawn.mean() == pytest.approx(1.038 * (0.01 + cost * 1e-4), rel=0.05)
    drawn = np.array([seen.batch(300, rng) for _ in range(4000)])
    assert np.quantile(drawn, 0.995) > 2.5 * float(seen.curve.usual(300))


def test_what_was_never_seen_is_known_not_to_be():
    seen = Seen(curve())
    assert seen.known(300) and not seen.known(5000)


def test_a_quantum_has_as_many_tokens_as_fit_and_no_more_than_were_ever_seen():
    rng = random.Random(0)
    seconds, tokens = Seen(curve(), step=0.004).quantum(0, 3, 0.05, rng)
    assert (seconds, tokens) == (pytest.approx(0.048), 12)
    assert Seen(curve(), step=0.004, most=2).quantum(0, 3, 0.05, rng)[1] == 2
    assert Seen(curve(), step=0.2).quantum(0, 3, 0.05, rng) == (pytest.approx(0.2), 1)
    joined, _ = Seen(curve(), step=0.004).quantum(500, 3, 0.05, rng)
    assert joined > 0.08


def test_loads_are_drawn_by_where_the_weights_are():
    rng = random.Random(0)
    loads = Loads((1.0, 2.0), (0.1,))
    assert {loads.draw(False, rng) for _ in range(50)} == {1.0, 2.0}
    assert loads.draw(True, rng) == 0.1
    assert Loads((1.0,)).draw(True, rng) == 1.0
    assert Declared(0.1, 0.01).batch(5, rng) == pytest.approx(0.15)
