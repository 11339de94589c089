"""Which rate to try next, and for how long: up by steps, two past the first failure, then in between. Pure.

The same object drives a ramp on the real engine and one in the twin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from replay.steps import Step

STEP = 1.15
"""Each step's rate over the one before."""

BISECTIONS = 3
"""Steps between the last rate that held and the first that did not."""

FAILS = 2
"""Steps past the first failure that end the climb: one may be bad luck, more only cost time."""


@dataclass(frozen=True, slots=True)
class Dwell:
    """Seconds at one rate. Long where the knee may be: short windows put it 10 to 17 % too high."""

    far: float = 45.0
    near: float = 180.0
    many: float = math.inf
    """Requests that are enough near the knee, once `least` seconds have passed too."""
    least: float = 45.0

    def seconds(self, rate: float, near: bool, target: float) -> float:
        if not near:
            return max(self.far, 5 * target)
        return max(min(self.near, max(self.many / rate, self.least)), 20 * target)


@dataclass(slots=True)
class Ramp:
    """Ask `next`, run it, tell `observe`; until `next` is None. `steps` is the sweep."""

    first_rate: float
    target: float
    """p99, in seconds."""
    dwell: Dwell = Dwell()
    last_rate: float = float("inf")
    steps: list[Step] = field(default_factory=list)
    _held: list[bool] = field(default_factory=list)
    """Of each step, whether it passed."""
    _bisected: int = 0
    _again: float | None = None
    _asked: float = 0.0
    """Seconds of the step that was asked for last; one that is lost may have ended before."""

    def next(self) -> tuple[float, float] | None:
        """Rate in requests per second and seconds to hold it; None when the sweep is over."""
        if (asked := self._next()) is not None:
            self._asked = asked[1]
        return asked

    def _next(self) -> tuple[float, float] | None:
        if self._again is not None:
            return self._again, self.dwell.seconds(self._again, True, self.target)
        if not self._over():
            rate = self.steps[-1].offered * STEP if self.steps else self.first_rate
            near = bool(self.steps) and self.steps[-1].p99 > self.target / 2
            return rate, self.dwell.seconds(rate, near, self.target)
        between = self._between()
        if between is None or self._bisected >= BISECTIONS:
            return None
        low, high = between
        rate = (low * high) ** 0.5
        return rate, self.dwell.seconds(rate, True, self.target)

    def observe(self, step: Step) -> None:
        """The step that was asked for has been run.

        One that failed in a short window is run again in a long one: bad luck ends no ramp.
        """
        long_enough = self.dwell.seconds(step.offered, True, self.target)
        held = step.passes(self.target)
        if self._again is None and self._asked < long_enough and not held:
            self._again = step.offered
            return
        self._again = None
        if self._over():
            self._bisected += 1
        self.steps.append(step)
        self._held.append(held)

    def _over(self) -> bool:
        """Whether the climb has ended."""
        climbed = self.steps[: len(self.steps) - self._bisected]
        if climbed and climbed[-1].offered * STEP > self.last_rate:
            return True
        failed = [not held for held in self._held[: len(climbed)]]
        return True in failed and len(failed) - failed.index(True) > FAILS and any(failed[-FAILS:])

    def _between(self) -> tuple[float, float] | None:
        """The last rate that held and the first above it that did not."""
        rates = [step.offered for step in self.steps]
        held = [rate for rate, passed in zip(rates, self._held, strict=True) if passed]
        broke = [rate for rate, passed in zip(rates, self._held, strict=True) if not passed]
        above = [rate for rate in broke if not held or rate > max(held)]
        if not above:
            return None
        return (max(held) if held else min(above) / STEP**2), min(above)
