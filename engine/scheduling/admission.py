"""Who may join the queue: one decision, with a computed time to come back. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from engine.errors import EngineError, QueueFull
from engine.scheduling.lanes import Job
from engine.scheduling.rules import SchedulingRules

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


class Backlog(msgspec.Struct, frozen=True):
    """What waits when a request comes."""

    waiting: int = 0
    """Jobs in all lanes."""
    lane_jobs: int = 0
    lane_cost: int = 0
    key_jobs: Callable[[], int] = lambda: 0
    """Of the same principal in the same lane; asked for only where there is more than one."""
    predicted_wait: Callable[[], float] = lambda: 0.0
    """Seconds; asked for only where a deadline makes it matter."""


@dataclass(slots=True)
class Admission:
    """Limits on what waits. They are on what is there before a request comes: one larger than a limit
    is admitted whole when the queue is below it, so that nothing is refused for ever.

    The limit for one principal keeps room for others. It holds from when a second one is seen: a server
    with one caller, or without keys, has its whole queue.
    """

    rules: SchedulingRules
    rates: dict[str, DrainRate] = field(default_factory=dict)
    _first: str | None = None
    """The first principal that was seen."""
    _several: bool = False

    def finished(self, unit: str, cost: int, now: float) -> None:
        rate = self.rates.get(unit)
        if rate is None:
            rate = self.rates[unit] = DrainRate()
        rate.left(cost, now)

    def refusal(self, jobs: Sequence[Job], backlog: Backlog, now: float) -> EngineError | None:
        """Why these jobs, all of one unit and one principal, may not wait now; None when they may."""
        if not jobs:
            return None
        if jobs[0].principal != self._first:
            self._seen(jobs[0].principal)
        if full := self._full(backlog):
            return QueueFull(full).after(self._retry(jobs[0].unit, backlog.lane_cost, now))
        deadline = min([job.deadline for job in jobs])
        wait = backlog.predicted_wait() if deadline < math.inf else 0.0
        if now + wait > deadline:
            text = f"The predicted wait is {wait:.2f} s, longer than the deadline leaves."
            return QueueFull(text).after(now + wait - deadline)
        return None

    def _full(self, backlog: Backlog) -> str | None:
        """Which limit is reached, in words."""
        rules = self.rules
        if backlog.waiting >= rules.max_waiting_jobs:
            return (
                f"{backlog.waiting} jobs wait in all, and the limit (max_waiting_jobs) is "
                f"{rules.max_waiting_jobs}."
            )
        if backlog.lane_jobs >= rules.max_model_jobs:
            return (
                f"{backlog.lane_jobs} jobs wait for this model, the limit (max_model_jobs) is "
                f"{rules.max_model_jobs}."
            )
        if backlog.lane_cost >= rules.max_model_cost:
            return (
                f"Work of a cost of {backlog.lane_cost} waits for this model, the limit (max_model_cost) is "
                f"{rules.max_model_cost}."
            )
        if self._several and (key_jobs := backlog.key_jobs()) >= rules.max_key_jobs:
            return (
                f"{key_jobs} jobs of yours wait for this model, the limit (max_key_jobs) is "
                f"{rules.max_key_jobs}."
            )
        return None

    def _seen(self, principal: str) -> None:
        self._several = self._first is not None
        if self._first is None:
            self._first = principal

    def _retry(self, unit: str, cost: int, now: float) -> float:
        """Seconds in which a tenth of the lane is gone at the rate of the last seconds."""
        rate = self.rates.get(unit, DrainRate()).per_second(now)
        return min(30.0, max(0.05, cost / 10 / rate)) if rate else 1.0
