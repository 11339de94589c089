"""Who may join the queue: one decision, with a computed time to come back. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.errors import EngineError, QueueFull
from engine.scheduling.lanes import Job

MEMORY_SECONDS = 5.0


@dataclass(slots=True)
class DrainRate:
    """Cost per second that leaves the queue, over the last few seconds."""

    _cost: float = 0.0
    _since: float = -math.inf

    def left(self, cost: int, now: float) -> None:
        """Work of `cost` was finished."""
        self._cost = self._cost * self._fade(now) + cost
        self._since = now

    def per_second(self, now: float) -> float:
        return self._cost * self._fade(now) / MEMORY_SECONDS

    def _fade(self, now: float) -> float:
        return math.exp((self._since - now) / MEMORY_SECONDS) if self._since > -math.inf else 0.0


@dataclass(slots=True)
class Admission:
    """Limits on what waits. They are on what is there before a request comes: one larger than a limit
    is admitted whole when the queue is below it, so that nothing is refused for ever."""

    max_waiting_jobs: int
    max_model_jobs: int
    rates: dict[str, DrainRate] = field(default_factory=dict)

    def finished(self, unit: str, cost: int, now: float) -> None:
        self.rates.setdefault(unit, DrainRate()).left(cost, now)

    def refusal(
        self,
        jobs: Sequence[Job],
        *,
        waiting: int,
        lane_jobs: int,
        lane_cost: int,
        predicted_wait: float,
        now: float,
    ) -> EngineError | None:
        """Why these jobs may not wait now, or None."""
        if not jobs:
            return None
        unit = jobs[0].unit
        if waiting >= self.max_waiting_jobs:
            text = f"{waiting} jobs wait in all, and the limit (max_waiting_jobs) is {self.max_waiting_jobs}."
            return QueueFull(text).after(self._retry(unit, lane_cost, now))
        if lane_jobs >= self.max_model_jobs:
            text = (
                f"{lane_jobs} jobs wait for this model, the limit (max_model_jobs) is {self.max_model_jobs}."
            )
            return QueueFull(text).after(self._retry(unit, lane_cost, now))
        deadline = min(job.deadline for job in jobs)
        if now + predicted_wait > deadline:
            text = f"The predicted wait is {predicted_wait:.2f} s, longer than the deadline leaves."
            return QueueFull(text).after(now + predicted_wait - deadline)
        return None

    def _retry(self, unit: str, cost: int, now: float) -> float:
        """Seconds in which a tenth of the lane is gone at the rate of the last seconds."""
        rate = self.rates.get(unit, DrainRate()).per_second(now)
        return min(30.0, max(0.05, cost / 10 / rate)) if rate else 1.0
