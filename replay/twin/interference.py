"""How much batches slow each other that run on one device at once, as a recording shows it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from replay.knee import isotonic
from replay.service import ServiceCurve
from replay.trace import Floats

FEWEST = 20
"""Readings below which nothing is said: of one unit alone on the device, and of all beside so many others."""

NEAR = 0.1
"""A batch had so many others beside it when it had them for all but this share of its time."""

ALONE = (1.0,)


@dataclass(frozen=True, slots=True)
class Slowed:
    """`factors`: how many times as long a batch takes, by the number of others; the last is for more too."""

    factors: tuple[float, ...]
    readings: int
    """Of batches that had others beside them."""

    def at(self, others: Floats) -> Floats:
        """Factors (n,) of numbers of others (n,), which may be means."""
        return np.interp(others, np.arange(len(self.factors)), self.factors)

    def words(self, device: str, slots: int) -> list[str]:
        """What a plan stands on where a device runs several batches at once."""
        known = len(self.factors) - 1
        if slots < 2:
            return []
        if not known:
            return [f"{device}: batches at once are taken not to slow each other; too few ran so to tell"]
        told = ", ".join(f"{factor:.2f} beside {n}" for n, factor in enumerate(self.factors) if n)
        said = [f"{device}: a batch takes times as long beside others: {told} ({self.readings} readings)"]
        if known < slots - 1:
            said.append(
                f"{device}: beside more than {known} a batch is taken to be as slow as beside {known}"
            )
        return said


def company(began: Floats, seconds: Floats) -> Floats:
    """How many others ran beside each batch of one device, as a mean over its time."""
    ended = began + seconds
    starts, ends = np.sort(began), np.sort(ended)

    def ran(until: Floats) -> Floats:
        """Seconds that all together had run by then."""
        return _since(starts, until) - _since(ends, until)

    return np.maximum(0.0, (ran(ended) - ran(began)) / np.maximum(seconds, 1e-9) - 1)


def _since(moments: Floats, until: Floats) -> Floats:
    """The sum of what has passed since each of these that is over."""
    sums = np.concatenate([[0.0], np.cumsum(moments)])
    over = np.searchsorted(moments, until, side="right")
    return np.asarray(over * until - sums[over])


def learned(units: NDArray[np.object_], costs: Floats, seconds: Floats, others: Floats, slots: int) -> Slowed:
    """From every batch of one device, (n,) each. A unit's batches are held against its own of the same cost
    that ran alone; the medians of all units' ratios never fall as the others become more."""
    ratios, beside = _ratios(units, costs, seconds, others)
    usual = [ratios[np.abs(beside - n) <= NEAR] for n in range(slots)]
    known = next((n for n, found in enumerate(usual) if len(found) < FEWEST), slots)
    if known < 2:
        return Slowed(ALONE, 0)
    counts = np.array([len(found) for found in usual[1:known]], dtype=np.float64)
    alone = float(np.median(usual[0]))
    factors = isotonic(np.array([float(np.median(found)) / alone for found in usual[1:known]]), counts)
    return Slowed((1.0, *np.maximum(1.0, factors).tolist()), int(counts.sum()))


def _ratios(
    units: NDArray[np.object_], costs: Floats, seconds: Floats, others: Floats
) -> tuple[Floats, Floats]:
    """Times over what they would be alone, of batches of costs that were seen alone; and their others."""
    ratios: list[Floats] = [np.zeros(0)]
    beside: list[Floats] = [np.zeros(0)]
    for unit in dict.fromkeys(units.tolist()):
        mine = units == unit
        alone = mine & (others <= NEAR)
        if alone.sum() < FEWEST:
            continue
        curve = ServiceCurve.fit(costs[alone], seconds[alone])
        rows = mine & (costs >= costs[alone].min()) & (costs <= costs[alone].max())
        ratios.append(seconds[rows] / np.maximum(curve.mean(costs[rows]), 1e-9))
        beside.append(others[rows])
    return np.concatenate(ratios), np.concatenate(beside)
