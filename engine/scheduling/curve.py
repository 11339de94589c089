"""How long a batch of a given cost runs: learned while serving, never falling with cost. Pure."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping

PER_OCTAVE = 2
MEMORY = 0.2
"""Weight of the newest reading in its bucket's mean."""


class RuntimeCurve:
    """Seconds as a function of cost, from readings kept in buckets of half an octave.

    Between buckets it is linear; above the last it grows in proportion; below the first it is flat.
    Isotonic by pool-adjacent-violators (Ayer et al. 1955), weighted by the number of readings.
    """

    def __init__(self) -> None:
        self._buckets: dict[int, tuple[float, float, int]] = {}  # bucket -> mean cost, seconds, readings
        self._costs: list[float] = []
        self._seconds: list[float] = []
        self._places: dict[int, int] = {}  # of each bucket in both, as long as none are pooled
        self._stale = False

    def __bool__(self) -> bool:
        return bool(self._buckets)

    def observe(self, cost: int, seconds: float) -> None:
        """A batch of `cost` ran for `seconds`."""
        bucket = int(math.log2(max(1, cost)) * PER_OCTAVE)
        mean_cost, mean, readings = self._buckets.get(bucket, (float(cost), seconds, 0))
        weight = max(MEMORY, 1 / (readings + 1))
        mean_cost, mean = mean_cost + weight * (cost - mean_cost), mean + weight * (seconds - mean)
        self._buckets[bucket] = (mean_cost, mean, readings + 1)
        self._stale = self._stale or not self._moved(bucket, mean_cost, mean)

    def seconds(self, cost: float) -> float:
        """Predicted run time; 0 while nothing is known."""
        if self._stale:
            self._refit()
        if not self._costs:
            return 0.0
        place = bisect.bisect_left(self._costs, cost)
        if place == 0:
            return self._seconds[0]
        if place == len(self._costs):
            return self._seconds[-1] * cost / self._costs[-1]
        low, high = self._costs[place - 1], self._costs[place]
        share = (cost - low) / (high - low)
        return self._seconds[place - 1] + share * (self._seconds[place] - self._seconds[place - 1])

    def cost_within(self, seconds: float) -> float:
        """The largest cost predicted to run within `seconds`; inf while nothing is known.

        Twice the largest that ever ran may be tried when that one did: only so is it learned that a batch
        costs more than its jobs do.
        """
        if self._stale:
            self._refit()
        if not self._costs:
            return math.inf
        if seconds >= self._seconds[-1]:
            in_proportion = seconds / self._seconds[-1] if self._seconds[-1] else math.inf
            return self._costs[-1] * max(2.0, in_proportion)
        place = bisect.bisect_right(self._seconds, seconds)
        if place == 0:
            return self._costs[0] * seconds / self._seconds[0]
        low, high = self._seconds[place - 1], self._seconds[place]
        share = (seconds - low) / (high - low)
        return self._costs[place - 1] + share * (self._costs[place] - self._costs[place - 1])

    def points(self) -> dict[str, tuple[float, float, int]]:
        """What was learned, as plain data."""
        return {str(bucket): reading for bucket, reading in sorted(self._buckets.items())}

    def learn(self, points: Mapping[str, tuple[float, float, int]]) -> None:
        """Start from what an earlier run learned."""
        self._buckets = {int(b): (float(c), float(s), int(n)) for b, (c, s, n) in points.items()}
        self._stale = True

    def _moved(self, bucket: int, cost: float, seconds: float) -> bool:
        """Whether its new mean could take the old one's place: where nothing is pooled and nothing need be,
        that is what a fit would find."""
        place, fitted = self._places.get(bucket), self._seconds
        if place is None or (place and fitted[place - 1] > seconds):
            return False
        if place + 1 < len(fitted) and seconds > fitted[place + 1]:
            return False
        self._costs[place], fitted[place] = cost, seconds
        return True

    def _refit(self) -> None:
        self._stale = False
        ordered = sorted(self._buckets.items())
        pools: list[tuple[float, float, int]] = []  # weight, seconds, buckets
        for _, (_, seconds, readings) in ordered:
            weight, count = float(readings), 1
            while pools and pools[-1][1] > seconds:
                before, above, earlier = pools.pop()
                seconds = (before * above + weight * seconds) / (before + weight)
                weight, count = before + weight, earlier + count
            pools.append((weight, seconds, count))
        self._costs = [cost for _, (cost, _, _) in ordered]
        self._seconds = [seconds for _, seconds, count in pools for _ in range(count)]
        pooled = len(pools) < len(ordered)
        self._places = {} if pooled else {bucket: place for place, (bucket, _) in enumerate(ordered)}
