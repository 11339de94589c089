"""Whether a quicker way to run the same weights pays. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

FEW = 64
"""Cost of a batch of few texts, as single requests make it."""


@dataclass(frozen=True, slots=True)
class Gains:
    """Of each round: seconds of the plain way for one of the quicker, for few texts and for a full batch."""

    few: Sequence[float]
    full: Sequence[float]

    def pays(self, worth: float) -> bool:
        """Whether it gains what is worth it in one of both, and loses no such thing in the other."""
        each = statistics.median(self.few), statistics.median(self.full)
        return max(each) >= worth and min(each) > 1 / worth

    def __str__(self) -> str:
        few, full = statistics.median(self.few), statistics.median(self.full)
        return f"few texts {few:.2f} times as fast, a full batch {full:.2f}"
