"""Spells in which a machine is slower or faster than usual: seen in a recording, had again in the twin.

What else a machine does slows batch after batch. Were the same times drawn one by one they would make no
queue, and p95 would be told too low: what neighbours in time have in common is kept in its order, in blocks
(the block bootstrap: Künsch, 1989). Pure.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from replay.trace import Floats

AROUND = 6
"""Batches before and after one that show how slow the machine was."""

WINDOW = 1.0
"""Seconds for which it is taken to be as slow."""

BLOCK = 20
"""Windows that stay together."""

MOST = 360 * BLOCK
"""Windows that are kept of a recording, as blocks from all over it."""

SLIGHT = 0.01
"""Spells that change nothing by more than this share are none."""


def nearby(values: Floats) -> Floats:
    """(n,): the median of up to `AROUND` before each and as many after it, without itself; 0 of none."""
    count = len(values)
    if count < 2:
        return np.zeros(count)
    apart = [step for step in range(-AROUND, AROUND + 1) if step]
    places = np.arange(count)[:, None] + np.array(apart)
    inside = (places >= 0) & (places < count)
    near = np.where(inside, values[np.clip(places, 0, count - 1)], np.inf)
    near.sort(axis=1)
    known, rows = inside.sum(axis=1), np.arange(count)
    return np.asarray((near[rows, (known - 1) // 2] + near[rows, known // 2]) / 2)


def learned(began: Floats, off: Floats) -> tuple[Floats, Floats]:
    """From batches of one device, in order of their begin, and the logarithms of their times over what is
    usual: how many times as slow it was in each window from the first batch on, and when each ran, (n,).

    What neighbours say counts as far as it foretells: of times that have nothing to do with each other no
    spells are made.
    """
    if len(off) < 2 * AROUND:
        return np.zeros(0), np.ones(len(off))
    said = nearby(off)
    said = said - np.median(said)
    spread = float((said**2).sum())
    foretold = float((said * (off - off.mean())).sum()) / spread if spread else 0.0
    said *= min(1.0, max(0.0, foretold))
    window = ((began - began[0]) / WINDOW).astype(np.intp)
    count = np.bincount(window)
    seen = np.flatnonzero(count)
    means = np.bincount(window, said)[seen] / count[seen]
    # Where nothing ran it was as it had been before.
    series = means[np.searchsorted(seen, np.arange(len(count)), side="right") - 1]
    if np.abs(series).max() < SLIGHT:
        return np.zeros(0), np.ones(len(off))
    factors = np.exp(series)
    return _thinned(factors), factors[window]


def _thinned(factors: Floats) -> Floats:
    if len(factors) <= MOST:
        return factors
    blocks = factors[: len(factors) // BLOCK * BLOCK].reshape(-1, BLOCK)
    return blocks[np.linspace(0, len(blocks) - 1, MOST // BLOCK).astype(np.intp)].ravel()


class Spells:
    """The same lived through again, by blocks in an order of luck."""

    def __init__(self, factors: Sequence[float], luck: random.Random) -> None:
        self._factors = factors
        self._luck = luck
        self._drawn: list[float] = []

    def at(self, now: float) -> float:
        """How many times as long as usual it takes what begins now. `now` never falls."""
        if not self._factors:
            return 1.0
        place, drawn = int(now / WINDOW), self._drawn
        while place >= len(drawn):
            first = self._luck.randrange(len(self._factors))
            drawn += [self._factors[(first + n) % len(self._factors)] for n in range(BLOCK)]
        return drawn[place]
