"""How large a batch should be, and how long one is expected to run. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from engine.requests import ServiceClass
from engine.scheduling.curve import RuntimeCurve
from engine.scheduling.lanes import Lane
from engine.scheduling.rules import BATCH_SHARE, QUANTUM_SHARE, SchedulingRules
from engine.units import UnitFacts


@dataclass(slots=True)
class Sizing:
    rules: SchedulingRules
    curves: dict[tuple[str, str], RuntimeCurve] = field(default_factory=dict)
    """Learned run times by unit and device."""
    interactive_seen: float = -math.inf
    """When interactive work last came."""

    def observe(self, unit: str, device: str, cost: int, seconds: float) -> None:
        """A batch ran."""
        self.curves.setdefault((unit, device), RuntimeCurve()).observe(cost, seconds)

    def predicted(self, unit: str, device: str, cost: int) -> float:
        """Seconds that a batch of `cost` is expected to run; 0 while nothing is known."""
        curve = self.curves.get((unit, device))
        return curve.seconds(max(1, cost)) if curve else 0.0

    def usual_cost(self, facts: UnitFacts) -> int:
        """The largest batch that profile and rules ask for."""
        return facts.max_batch_cost if facts.max_batch_cost < 1 << 62 else self.rules.batch_cost

    def soft_cost(self, facts: UnitFacts, device: str, urgency: ServiceClass, want: int, now: float) -> int:
        """Up to `want`, what is predicted to run no longer than a batch of this class may."""
        curve = self.curves.get((facts.unit, device))
        if not curve:
            return min(want, self.rules.batch_cost)  # the first batch is a careful one
        return int(min(want, curve.cost_within(self._longest(facts, urgency, now))))

    def next_run(
        self, facts: UnitFacts, device: str, urgency: ServiceClass, waiting: int, now: float
    ) -> float:
        """Predicted seconds of the batch that a lane would send of what costs `waiting`; 0 while nothing is
        known."""
        curve = self.curves.get((facts.unit, device))
        if not curve:
            return 0.0
        within = curve.cost_within(self._longest(facts, urgency, now))
        return curve.seconds(max(1, int(min(max(1, waiting), self.usual_cost(facts), within))))

    def soft_costs(
        self, facts: UnitFacts, device: str, lane: Lane, want: int, now: float
    ) -> dict[ServiceClass, int]:
        """The same for each class that waits. What rides along with interactive work lengthens its batch: it
        may take half a quantum, since another one may already be running."""
        costs = {each: self.soft_cost(facts, device, each, want, now) for each in lane.classes}
        curve = self.curves.get((facts.unit, device))
        if curve and ServiceClass.INTERACTIVE in costs:
            riding = int(curve.cost_within(self._quantum_bound / 2))
            costs = {
                c: cost if c is ServiceClass.INTERACTIVE else min(cost, riding) for c, cost in costs.items()
            }
        return costs

    def target(self, facts: UnitFacts, urgency: ServiceClass) -> float:
        """The p99 target of a class, as the unit or else the rules have it."""
        return facts.targets.get(urgency, self.rules.targets[urgency])

    def _longest(self, facts: UnitFacts, urgency: ServiceClass, now: float) -> float:
        """Seconds that a batch of this class may run."""
        own = self.target(facts, urgency) * BATCH_SHARE
        if urgency is ServiceClass.INTERACTIVE or self.interactive_seen == -math.inf:
            return own  # nothing holds it up, nor does it hold up anything
        return min(own, self._bound(urgency, now))

    def quantum(self, urgency: ServiceClass, now: float) -> float:
        """Seconds of one generation quantum of this class."""
        return min(self.rules.quantum, self._bound(urgency, now))

    def _bound(self, urgency: ServiceClass, now: float) -> float:
        """While interactive work is about, what else runs may hold it up by a share of its target only."""
        recently = now - self.interactive_seen <= self.rules.interactive_window
        if not recently or urgency is ServiceClass.INTERACTIVE:
            return math.inf
        return self._quantum_bound

    @property
    def _quantum_bound(self) -> float:
        return self.rules.targets[ServiceClass.INTERACTIVE] * QUANTUM_SHARE
