"""How long batches really took, to draw from: the usual time over cost, and its scatter. Pure.

The scatter is kept as it was seen. A mean with a standard deviation has no tail, and a plan's p99 is
made of the tail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from replay.knee import isotonic
from replay.trace import Floats

PER_OCTAVE = 2

SMOOTH = 20
"""Readings of a bucket that count as much as the line through all buckets: a few are mostly chance."""

ENOUGH = 40
"""Readings that show a tail. A bucket with fewer borrows its neighbours'."""


@dataclass(frozen=True, slots=True)
class ServiceCurve:
    """Seconds of a batch over its cost. `costs` and `seconds` (k,) never fall."""

    costs: Floats
    seconds: Floats
    scatter: tuple[Floats, ...]
    """For each point, readings divided by the curve there."""
    readings: int
    slope: float = 0.0
    """Seconds that one more of cost takes, beyond the last point."""

    @classmethod
    def fit(cls, costs: Sequence[int] | Floats, seconds: Sequence[float] | Floats) -> ServiceCurve:
        """From every batch that ran, in buckets of half an octave. Needs at least one.

        The curve is of medians: one stall among a few readings would lift it for all that are drawn there,
        and would be drawn again on top. What stalls add is in the scatter.
        """
        x, y = np.asarray(costs, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
        assert len(x) and len(x) == len(y)
        bucket = buckets(x)
        kinds = np.unique(bucket)
        places = np.array([x[bucket == kind].mean() for kind in kinds])
        counts = np.array([(bucket == kind).sum() for kind in kinds], dtype=np.float64)
        usual = np.array([float(np.median(y[bucket == kind])) for kind in kinds])
        begin, slope = line(places, usual, counts)
        weight = counts / (counts + SMOOTH)
        smooth = isotonic(weight * usual + (1 - weight) * (begin + slope * places), counts)
        curve = cls(places, smooth, (), len(x), slope)
        ratios = y / np.maximum(curve.usual(x), 1e-9)
        return replace(curve, scatter=tuple(_near(ratios, bucket, kind) for kind in kinds.tolist()))

    def usual(self, cost: float | Floats) -> Floats:
        """Linear between points, flat below the first, and beyond the last as all of them slope."""
        beyond = np.maximum(np.asarray(cost, dtype=np.float64) - self.costs[-1], 0.0)
        return np.asarray(np.interp(cost, self.costs, self.seconds) + beyond * self.slope)


def buckets(costs: Floats) -> NDArray[np.int64]:
    """(n,): a number for costs that are about the same."""
    return np.asarray(np.floor(np.log2(np.maximum(costs, 1)) * PER_OCTAVE), dtype=np.int64)


def line(costs: Floats, seconds: Floats, counts: Floats) -> tuple[float, float]:
    """Where it begins and how it slopes: the line through the points that is off by the smallest shares of
    them, neither falling nor beginning below zero. One point has a line through zero."""
    weights = counts / np.maximum(seconds, 1e-9) ** 2
    x, y = float(np.average(costs, weights=weights)), float(np.average(seconds, weights=weights))
    spread = float(np.average((costs - x) ** 2, weights=weights))
    slope = y / x
    if spread > 1e-9 * x * x:
        slope = float(np.average((costs - x) * (seconds - y), weights=weights)) / spread
        slope = min(max(slope, 0.0), y / x)
    return y - slope * x, slope


def _near(ratios: Floats, buckets: NDArray[np.int64], kind: int) -> Floats:
    """Those of a bucket, and of its neighbours until there are enough: small batches scatter more."""
    apart = np.abs(buckets - kind)
    enough = np.sort(apart)[min(ENOUGH, len(apart)) - 1]
    return np.sort(ratios[apart <= enough])
