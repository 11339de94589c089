"""One step of a ramp: what was offered at one rate, what came back, and whether it was stable. Pure."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from replay.trace import Floats

TAIL = 0.99
CONFIDENCE = 1.645
"""Normal quantile of a one-sided bound of 95 %."""

SAMPLES = 200
"""Points at which the number in the system is read."""


@dataclass(frozen=True, slots=True)
class Step:
    """Requests that arrived in one step's window, after its warm-up.

    `arrived` (n,) in seconds, ascending; `latency` (n,) from the intended send to the answer, inf for
    what was refused or never came.
    """

    offered: float
    """Requests per second."""
    begin: float
    end: float
    arrived: Floats
    latency: Floats

    def __len__(self) -> int:
        return len(self.arrived)

    @property
    def p99(self) -> float:
        """The upper bound of the 99th percentile: inf with too few requests to bound it by."""
        return upper_quantile(self.latency, TAIL)

    @property
    def served(self) -> float:
        """Answered inside the window, per second."""
        done = self.arrived + self.latency
        return float((done <= self.end).sum()) / (self.end - self.begin)

    def passes(self, target: float) -> bool:
        """Whether it holds its target and the queue does not grow."""
        return self.p99 <= target and self.stable(target)

    def stable(self, target: float) -> bool:
        """Whether this could go on for ever, as far as one window shows.

        Not when arrivals outrun answers and the number in the system rises with them; when it rises by so
        much that a quarter of the target is gone; or when each quarter of the window was slower than the
        one before and the last half as slow again as the first.
        """
        count = len(self)
        if count < 8:
            return True
        slope, t = self._trend()
        window = self.end - self.begin
        deficit = 1 - self.served * window / count
        if deficit > max(0.03, 3 / math.sqrt(count)) and t > 2:
            return False
        served = max(self.served, 1e-9)
        if t > 4 and slope * window / served > target / 4:
            return False
        quarters = [float(np.median(part)) for part in np.array_split(self.latency, 4)]
        rising = all(a < b for a, b in itertools.pairwise(quarters))
        return not (rising and quarters[-1] > 1.5 * quarters[0])

    def _trend(self) -> tuple[float, float]:
        """Slope of the number in the system over time, per second, and its t statistic."""
        times = np.linspace(self.begin, self.end, SAMPLES)
        came = np.searchsorted(self.arrived, times, side="right")
        left = np.searchsorted(np.sort(self.arrived + self.latency), times, side="right")
        inside = (came - left).astype(np.float64)
        centred = times - times.mean()
        spread = float((centred**2).sum())
        slope = float((centred * inside).sum()) / spread
        rest = inside - inside.mean() - slope * centred
        error = math.sqrt(float((rest**2).sum()) / (SAMPLES - 2) / spread)
        return slope, slope / error if error else (math.inf if slope > 0 else 0.0)


def upper_quantile(values: Floats, share: float) -> float:
    """The order statistic that the `share` quantile is below with 95 % confidence; inf when there is none."""
    return float(np.sort(values)[rank(len(values), share) - 1]) if len(values) else math.inf


def rank(count: int, share: float) -> int:
    """Of that order statistic: ceil(share n + 1.645 sqrt(n share (1 - share))), the normal bound of a
    binomial's; at most all."""
    bound = share * count + CONFIDENCE * math.sqrt(count * share * (1 - share))
    return min(count, math.ceil(bound))
