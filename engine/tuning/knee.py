"""What a cost curve says: where larger batches stop paying. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ENOUGH = 0.95
"""Of the best throughput: the smallest batch that gives as much is best, for it keeps nobody waiting."""


@dataclass(frozen=True, slots=True)
class Point:
    """A batch: its cost, and the median of its run times in seconds."""

    cost: int
    seconds: float

    @property
    def rate(self) -> float:
        """Cost a second."""
        return self.cost / self.seconds


def knee(curve: Sequence[Point]) -> Point:
    """The cheapest batch with nearly the best throughput."""
    best = max(point.rate for point in curve)
    return min((point for point in curve if point.rate >= ENOUGH * best), key=lambda point: point.cost)


def fixed(curve: Sequence[Point]) -> float:
    """Seconds that a batch takes whatever its size: what a line through the two smallest leaves at zero.

    It is all that an item can save by waiting for company.
    """
    if len(curve) < 2:
        return 0.0
    one, other = sorted(curve, key=lambda point: point.cost)[:2]
    if one.cost == other.cost:
        return 0.0
    slope = (other.seconds - one.seconds) / (other.cost - one.cost)
    return max(0.0, one.seconds - slope * one.cost)
