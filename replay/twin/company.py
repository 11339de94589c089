"""Who is on a device at once. Pure."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replay.trace import Floats


class Company:
    """As `engine.devices.company` keeps it, for events in place of blocks: a peak of the whole device is one
    batch's only if that was alone."""

    def __init__(self) -> None:
        self._present: defaultdict[str, dict[int, bool]] = defaultdict(dict)
        self._numbers = itertools.count()

    def enter(self, device: str) -> int:
        """Somebody works on the device; a number to leave with."""
        present, number = self._present[device], next(self._numbers)
        alone = not present
        for other in present:
            present[other] = False
        present[number] = alone
        return number

    def leave(self, device: str, number: int) -> bool:
        """Whether it was alone there all the time."""
        return self._present[device].pop(number)


@dataclass(frozen=True, slots=True)
class Beside:
    """Of each of some batches, or loads, the shares of its time with so many batches beside it."""

    without: Floats
    """(n, k): with 0 to k - 1 others and no load."""
    loading: Floats
    """(n, k): with so many, and a load."""

    def rates(self, factors: Floats, loading: float) -> Floats:
        """(n,): at which each went on, as means over its time, where 1 is alone."""
        return np.asarray((self.without + self.loading / loading) @ (1 / factors))

    def take(self, rows: NDArray[Any]) -> Beside:
        return Beside(self.without[rows], self.loading[rows])


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How many batches and loads were under way on one device, over time, as a recording has them."""

    moments: Floats
    passed: Floats
    """(m, k + 1, 2): seconds until each moment with 0 to k batches, without and with a load."""

    @classmethod
    def of(cls, began: Floats, seconds: Floats, loads: Floats, load_seconds: Floats, most: int) -> Occupancy:
        """Of batches (n,) and loads (l,), by when they began. More than `most` batches count as so many."""
        moments = np.concatenate([began, began + seconds, loads, loads + load_seconds])
        batches, more = np.ones(len(began)), np.ones(len(loads))
        order = np.argsort(moments, kind="stable")
        run = np.cumsum(np.concatenate([batches, -batches, 0 * more, 0 * more])[order])
        load = np.cumsum(np.concatenate([0 * batches, 0 * batches, more, -more])[order])
        moments = moments[order]
        passed = np.zeros((len(moments), most + 1, 2))
        rows = np.arange(1, len(moments))
        state = np.minimum(run, most).astype(np.intp)[:-1], (load > 0).astype(np.intp)[:-1]
        passed[rows, *state] = np.diff(moments)
        return cls(moments, np.cumsum(passed, axis=0))

    def beside_batches(self, began: Floats, seconds: Floats) -> Beside:
        """Of batches that it was made of: themselves are not counted."""
        shares = self._shares(began, seconds)[:, 1:]
        # What was told too exactly to add up (a batch that began as the one before it ended) was alone.
        without = shares[..., 0]
        without[:, 0] += 1.0 - shares.sum(axis=(1, 2))
        return Beside(without, shares[..., 1])

    def beside_loads(self, began: Floats, seconds: Floats) -> Floats:
        """(l,): of loads that it was made of, the shares of their time in which batches ran."""
        return np.asarray(self._shares(began, seconds)[:, 1:].sum(axis=(1, 2)))

    def _shares(self, began: Floats, seconds: Floats) -> Floats:
        first = np.searchsorted(self.moments, began)
        last = np.searchsorted(self.moments, began + seconds)
        spent = self.passed[last] - self.passed[first]
        return np.asarray(spent / np.maximum(seconds, 1e-9)[:, None, None])
