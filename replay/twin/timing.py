"""How long the twin's batches, quanta and loads take: declared, or drawn from readings. Pure.

Draws come from a generator of each unit's own, so that a change to one model leaves the others' luck alone.
"""

from __future__ import annotations

import bisect
import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from replay.service import ServiceCurve

FEWEST = 5
"""Batches by which a unit's times are known at all."""


class Timing(Protocol):
    """What a unit's batches take on a device of speed 1."""

    def batch(self, cost: int, rng: random.Random) -> float:
        """Seconds of a batch of `cost`."""
        ...

    def quantum(self, cost: int, running: int, seconds: float, rng: random.Random) -> tuple[float, int]:
        """Seconds of a quantum that is to last about `seconds`, in which prompts of `cost` join `running`
        sequences; and the tokens that each sequence gains."""
        ...

    def peak_bytes(self, cost: int) -> int:
        """What a batch of `cost` would be seen to hold beside the weights; 0 where nobody can tell."""
        ...

    def known(self, cost: int) -> bool:
        """Whether batches of about this cost were seen."""
        ...

    @property
    def source(self) -> str:
        """Where these times are from, for whoever doubts a figure."""
        ...


@dataclass(frozen=True, slots=True)
class Declared:
    """As a simulated model declares itself: a part for the batch and a part for what is in it."""

    per_batch: float
    per_cost: float
    peak_per_cost: float = 0.0

    def batch(self, cost: int, rng: random.Random) -> float:
        return self.per_batch + cost * self.per_cost

    def quantum(self, cost: int, running: int, seconds: float, rng: random.Random) -> tuple[float, int]:
        return self.batch(cost + running, rng), 1

    def peak_bytes(self, cost: int) -> int:
        return int(cost * self.peak_per_cost)

    def known(self, cost: int) -> bool:
        return True

    @property
    def source(self) -> str:
        return f"declared: {self.per_batch:g} s a batch and {self.per_cost:g} s a cost"


@dataclass(slots=True)
class Seen:
    """As batches were seen to take. `step` is what one token of every running sequence takes, and `most`
    how many tokens of each a quantum was seen to have at most."""

    curve: ServiceCurve
    step: float = 0.0
    most: int = 1 << 62
    _costs: list[float] = field(init=False)
    _seconds: list[float] = field(init=False)
    _middles: list[float] = field(init=False)
    """Costs half way, on a scale of ratios, between one point's readings and the next one's."""
    _ratios: list[list[float]] = field(init=False)

    def __post_init__(self) -> None:
        curve = self.curve
        self._costs, self._seconds = curve.costs.tolist(), curve.seconds.tolist()
        self._middles = [math.sqrt(a * b) for a, b in itertools.pairwise(self._costs)]
        self._ratios = [ratios.tolist() for ratios in curve.scatter]

    def batch(self, cost: int, rng: random.Random) -> float:
        """As one of about this cost once took. Without arrays: it is asked for once a batch."""
        ratios = self._ratios[bisect.bisect_left(self._middles, cost)]
        return self._usual(cost) * ratios[int(rng.random() * len(ratios))]

    def _usual(self, cost: int) -> float:
        """As `ServiceCurve.usual`."""
        costs, seconds = self._costs, self._seconds
        place = bisect.bisect_left(costs, cost)
        if place == 0:
            return seconds[0]
        if place == len(costs):
            return seconds[-1] + (cost - costs[-1]) * self.curve.slope
        low, high = costs[place - 1], costs[place]
        return seconds[place - 1] + (seconds[place] - seconds[place - 1]) * (cost - low) / (high - low)

    def quantum(self, cost: int, running: int, seconds: float, rng: random.Random) -> tuple[float, int]:
        step = self.step or self._seconds[0]
        tokens = max(1, min(self.most, int(seconds / step)))
        # Quanta that nobody joins are in the curve too, at its lower end.
        joining = max(0.0, self._usual(cost) - self._seconds[0]) if cost else 0.0
        return joining + tokens * step, tokens

    def peak_bytes(self, cost: int) -> int:
        return 0

    def known(self, cost: int) -> bool:
        enough = self.curve.readings >= FEWEST
        return enough and self._costs[0] / 2 <= cost <= self._costs[-1] * 2

    @property
    def source(self) -> str:
        curve = self.curve
        return f"{curve.readings} batches of cost {curve.costs[0]:.0f} to {curve.costs[-1]:.0f}"


@dataclass(frozen=True, slots=True)
class Loads:
    """Seconds that bringing the weights took, by where they came from. One is drawn of those seen."""

    disk: Sequence[float]
    host: Sequence[float] = ()
    seen: bool = True
    """False: nobody saw this unit load, and the times are those of others, by size."""

    def draw(self, from_host: bool, rng: random.Random) -> float:
        readings = self.host if from_host and self.host else self.disk
        return readings[0] if len(readings) == 1 else readings[int(rng.random() * len(readings))]
