"""When a free slot should wait for company: at the beginning of a burst, and never otherwise. Pure.

While traffic is steady batches form by themselves, as large as the load asks for, since what comes while
slots are busy waits. A window would add its length to every answer and no throughput. At a burst's
beginning slots are idle: without a window the first few requests go alone, each for the price of a
batch, and the rest wait for them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from engine.scheduling.lanes import Lane
from engine.scheduling.sizing import Sizing
from engine.units import UnitFacts

SPAN = 0.005
"""Seconds that a burst lasts at most: what goes on for longer is traffic."""
STEADY_SECONDS = 0.1
"""Memory of the usual rate of arrivals."""
RISE = 4.0
"""A burst is this many times the usual rate."""
PRIOR_GAP = 0.0001
"""Seconds between arrivals, as long as few have been seen."""
PATIENCE = 10.0
"""Gaps of silence that end a burst. Of 64 random arrivals the longest gap is seldom above seven."""
LONGEST_SILENCE = 0.001
"""Seconds of silence that end any burst; the next begins after as many."""
FEWEST, MOST = 2, 4
"""Arrivals that a burst begins with: where windows were in vain, more are asked for."""


@dataclass(slots=True)
class Arrivals:
    """How requests of one unit have come lately."""

    usual: float = 0.0
    """Requests a second, over STEADY_SECONDS."""
    number: int = 0
    last: float = -math.inf
    since: float = -math.inf
    """When the first came after a silence; what follows counts from then."""
    came: int = 0
    cost: int = 0
    answered: int = 0
    answered_at: float = -math.inf
    least: int = FEWEST
    gap: float = math.inf
    """Mean seconds between arrivals."""
    quiet_at: float = -math.inf
    """When the burst is over unless something comes."""
    held_at: int | None = None
    """How many had come when a slot began to wait."""

    def add(self, cost: int, now: float) -> None:
        silence, self.last = now - self.last, now
        self.usual = self.usual * math.exp(-silence / STEADY_SECONDS) + 1 / STEADY_SECONDS
        self.number += 1
        self.quiet_at = -math.inf
        if silence > LONGEST_SILENCE:
            self.since, self.came, self.cost = now, 0, 0
            self.answered = self.answered if now - self.answered_at <= LONGEST_SILENCE else 0
        elif now - self.since > SPAN:
            return
        self.came += 1
        self.cost += cost
        self.gap = (now - self.since + PRIOR_GAP) / self.came
        # An arrival after an answer is the same caller's next request, and the next comes after the next.
        if self.came - self.answered >= self.least - 1 + RISE * SPAN * self.usual:
            self.quiet_at = now + min(LONGEST_SILENCE, PATIENCE * self.gap)

    def answer(self, requests: int, now: float) -> None:
        recent = self.answered if now - self.answered_at <= LONGEST_SILENCE else 0
        self.answered, self.answered_at = recent + requests, now

    def over(self) -> None:
        """The slot goes now: was anything gained by waiting?"""
        if self.held_at is not None:
            in_vain = self.number == self.held_at
            self.least = min(MOST, self.least + 1) if in_vain else FEWEST
        self.held_at = None


@dataclass(slots=True)
class Window:
    sizing: Sizing
    _arrivals: dict[str, Arrivals] = field(default_factory=dict)

    def arrived(self, unit: str, cost: int, now: float) -> None:
        """A request of this cost joined the unit's lane."""
        arrivals = self._arrivals.get(unit)
        if arrivals is None:
            arrivals = self._arrivals[unit] = Arrivals()
        arrivals.add(cost, now)

    def answered(self, unit: str, requests: int, now: float) -> None:
        """A batch with jobs of so many requests is over: their callers may send the next."""
        if arrivals := self._arrivals.get(unit):
            arrivals.answer(requests, now)

    def until(self, facts: UnitFacts, lane: Lane, device: str, slots: int, now: float) -> float:
        """How long the lane would leave a free slot waiting; the past when it should go now.

        It waits while requests come much faster than usual, too fast to be served one by one on `slots`,
        and not beyond a full batch, the longest wait, or the latest start that is on time.
        """
        arrivals = self._arrivals.get(facts.unit)
        if arrivals is None or arrivals.quiet_at <= now:
            return -math.inf
        head, urgency = lane.head(), lane.urgency()
        if head is None or urgency is None:
            return -math.inf
        alone = self.sizing.predicted(facts.unit, device, arrivals.cost // arrivals.came)
        if alone and alone / arrivals.gap <= slots / 2:
            return -math.inf
        full = self.sizing.soft_cost(facts, device, urgency, self.sizing.usual_cost(facts), now)
        if lane.cost >= min(full, head.max_batch_cost) or len(lane) >= head.max_batch_jobs:
            return -math.inf
        run = self.sizing.predicted(facts.unit, device, lane.cost)
        longest = self.sizing.rules.window_share * self.sizing.target(facts, urgency)
        longest = min(longest, max(SPAN, run))
        return min(arrivals.quiet_at, lane.oldest_arrival() + longest, head.due - run)

    def waits(self, unit: str) -> None:
        """A slot is left idle for this unit."""
        arrivals = self._arrivals[unit]
        if arrivals.held_at is None:
            arrivals.held_at = arrivals.number

    def over(self, unit: str) -> None:
        """A slot takes this unit's work."""
        if arrivals := self._arrivals.get(unit):
            arrivals.over()
