"""How long batches and loads really took, to draw from: the mean over cost, and its scatter. Pure.

The scatter is kept as it was seen. A mean with a standard deviation has no tail, and a plan's p99 is
made of the tail.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from replay.knee import isotonic
from replay.trace import Floats

PER_OCTAVE = 2

FEWEST = 20
"""Readings of a bucket that has a scatter of its own; with fewer it borrows everybody's."""


@dataclass(frozen=True, slots=True)
class ServiceCurve:
    """Seconds of a batch over its cost. `costs` and `seconds` (k,) never fall; `scatter` are ratios to it."""

    costs: Floats
    seconds: Floats
    scatter: tuple[Floats, ...]
    """For each point, readings divided by the curve there."""
    readings: int

    @classmethod
    def fit(cls, costs: Sequence[int] | Floats, seconds: Sequence[float] | Floats) -> ServiceCurve:
        """From every batch that ran, in buckets of half an octave. Needs at least one."""
        x, y = np.asarray(costs, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
        assert len(x) and len(x) == len(y)
        bucket = np.floor(np.log2(np.maximum(x, 1)) * PER_OCTAVE).astype(np.int64)
        kinds = np.unique(bucket)
        places = np.array([x[bucket == kind].mean() for kind in kinds])
        counts = np.array([(bucket == kind).sum() for kind in kinds])
        means = isotonic(np.array([y[bucket == kind].mean() for kind in kinds]), counts)
        curve = cls(places, means, (), len(x))
        ratios = y / np.maximum(curve.mean(x), 1e-9)
        own = [ratios[bucket == kind] for kind in kinds]
        scatter = tuple(np.sort(r if len(r) >= FEWEST else ratios) for r in own)
        return cls(places, means, scatter, len(x))

    def mean(self, cost: float | Floats) -> Floats:
        """Linear between points, flat below the first, in proportion beyond the last."""
        inside = np.interp(cost, self.costs, self.seconds)
        beyond = np.maximum(np.asarray(cost, dtype=np.float64) / self.costs[-1], 1.0)
        return np.asarray(inside * beyond)

    def draw(self, cost: int, rng: np.random.Generator) -> float:
        """Seconds of one batch, as one of about this cost once took."""
        near = int(np.abs(np.log(self.costs) - math.log(max(1, cost))).argmin())
        ratios = self.scatter[near]
        return float(self.mean(cost)) * float(ratios[rng.integers(len(ratios))])

    def known(self, cost: int) -> bool:
        """Whether batches of about this cost were seen; what is beyond is a guess and is said to be."""
        return bool(self.costs[0] / 2 <= cost <= self.costs[-1] * 2)

    def faster(self, speed: float) -> ServiceCurve:
        """The same on a device `speed` times as fast."""
        return ServiceCurve(self.costs, self.seconds / speed, self.scatter, self.readings)
