"""How much what runs on one device at once slows each other, as a recording shows it. Pure.

While n others run beside it a batch goes on at 1 / factor(n) of the rate that it has alone, and a load beside
it slows it further. So a batch's time is the time that it would take alone, stretched where it had company:
the factors are those under which batches of the same unit and cost differ least once that is taken out.
Every batch says something, also one that had company for a part of its time.

When the whole machine is slow for a while batches take longer and so have more company, which is not what
slowed them. So each is compared with those that ran shortly before and after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from replay.service import SMOOTH, buckets, line
from replay.trace import Floats
from replay.twin.company import Beside
from replay.twin.server import assumed
from replay.twin.spells import nearby

PRIOR = 3.0
"""Readings that what is assumed weighs as much as."""

ENOUGH = 10.0
"""Readings that tell a factor. With fewer it is said to be assumed."""

STRETCHES, STRETCH = 8, 500
"""Batches in a row that are looked at, and how often, evenly over the recording: more tell nothing new."""

CANDIDATES = 25
REACHES = (math.log(8.0), math.log(1.2))
"""Of the search for a factor, on a scale of ratios: all there may be, and then near the best."""


@dataclass(frozen=True, slots=True)
class Slowed:
    factors: tuple[float, ...]
    """How many times as long a batch takes beside so many others, from none on."""
    loading: float
    """How many times as long, besides, while a load runs on the device."""
    readings: tuple[float, ...]
    """Batches, in parts of their time, by which each factor was told."""
    beside_loads: float
    """The same for `loading`."""

    def words(self, device: str) -> tuple[list[str], list[str]]:
        """What a plan stands on where a device runs several things at once: what was measured, and what is
        mostly assumed."""
        measured, guessed = list[str](), list[str]()
        for others, factor in enumerate(self.factors):
            told = f"{device}: beside {others} more a batch takes {factor:.2f} times as long"
            if others and self.readings[others] < ENOUGH:
                guessed.append(f"{told}; that is mostly assumed, with {self.readings[others]:.0f} readings")
            elif others:
                measured.append(f"{told} ({self.readings[others]:.0f} readings)")
        if self.loading != 1.0:
            told = f"{self.loading:.2f} times as long ({self.beside_loads:.0f} readings)"
            kind = guessed if self.beside_loads < ENOUGH else measured
            kind.append(f"{device}: while a model loads a batch takes {told}")
        return measured, guessed


def learned(units: NDArray[np.object_], costs: Floats, seconds: Floats, beside: Beside) -> Slowed:
    """From batches of one device, (n,) each, in order of their begin. Factors never fall as the others become
    more, and stay near what is assumed where readings are few."""
    rows = _stretches(len(units))
    shares = (beside.without + beside.loading).sum(axis=0)
    searched = _Search([*_alike(units[rows], costs[rows], seconds[rows])], beside.take(rows))
    for reach in REACHES:
        for others in range(1, len(shares)):
            searched.widen(others, reach)
        if beside.loading.any():
            searched.load(reach)
    factors = tuple(searched.factors.tolist())
    return Slowed(factors, searched.loading, tuple(shares.tolist()), float(beside.loading.sum()))


def _stretches(count: int) -> NDArray[np.intp]:
    """Rows to look at."""
    if count <= STRETCHES * STRETCH:
        return np.arange(count)
    begins = np.linspace(0, count - STRETCH, STRETCHES).astype(np.intp)
    return np.unique(begins[:, None] + np.arange(STRETCH))


Alike = tuple[NDArray[np.intp], list[NDArray[np.intp]], Floats]
"""One unit's batches: their rows, places among these of batches of about one cost, and logarithms of their
times over a line through all."""


def _alike(units: NDArray[np.object_], costs: Floats, seconds: Floats) -> Iterator[Alike]:
    for unit in dict.fromkeys(units.tolist()):
        rows = np.flatnonzero(units == unit)
        x, y, bucket = costs[rows], np.maximum(seconds[rows], 1e-9), buckets(costs[rows])
        begin, slope = line(x, y, np.ones(len(x)))
        kinds = [np.flatnonzero(bucket == kind) for kind in np.unique(bucket)]
        yield rows, kinds, np.log(y / np.maximum(begin + slope * x, 1e-9))


class _Search:
    """Factors that are bettered one at a time."""

    def __init__(self, alike: list[Alike], beside: Beside) -> None:
        self._alike = alike
        self._beside = beside
        self.factors = np.array([assumed(n) for n in range(beside.without.shape[1])])
        self.loading = 1.0

    def widen(self, others: int, reach: float) -> None:
        """The factor beside so many; those beside more keep their ratio to it."""
        before, least = self.factors, float(self.factors[others - 1])
        usual = least * assumed(others) / assumed(others - 1)

        def risen(factor: float) -> Floats:
            made = before.copy()
            made[others:] *= factor / made[others]
            return made

        def off(factor: float) -> float:
            return self._scatter(risen(factor), self.loading) + PRIOR * abs(math.log(factor / usual))

        self.factors = risen(_best(off, (float(before[others]), usual), least, reach))

    def load(self, reach: float) -> None:
        def off(factor: float) -> float:
            return self._scatter(self.factors, factor) + PRIOR * math.log(factor)

        self.loading = _best(off, (self.loading, 1.0), 1.0, reach)

    def _scatter(self, factors: Floats, loading: float) -> float:
        """How far batches are off what is usual for their unit and cost at that time, were these the factors;
        the sum."""
        rates = np.log(self._beside.rates(factors, loading))
        off = np.zeros(len(rates))
        for rows, kinds, over in self._alike:
            alone = over + rates[rows]
            whole = float(np.median(alone))
            for kind in kinds:
                mine = alone[kind]
                usual = (len(mine) * float(np.median(mine)) + SMOOTH * whole) / (len(mine) + SMOOTH)
                off[rows[kind]] = mine - usual
        return float(np.abs(off - nearby(off)).sum())


def _best(off: Callable[[float], float], known: tuple[float, ...], least: float, reach: float) -> float:
    """The one that is off least of some around the first of these, of these and of the least there may be."""
    around = (known[0] * np.exp(np.linspace(-reach, reach, CANDIDATES))).tolist()
    tried: list[float] = [each for each in (*known, least, *around) if each >= least]
    return min(tried, key=off)
