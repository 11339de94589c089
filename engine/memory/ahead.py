"""Loads that nobody waits for: what is expected soon, and second copies of what is busy. Pure.

They take only what costs nobody anything, and are forgotten when that is not to be had in time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from engine.memory import eviction, placement
from engine.memory.arrivals import Arrivals
from engine.memory.departures import Departures
from engine.memory.effects import Effect
from engine.memory.holdings import Holdings
from engine.memory.residency import Residency
from engine.memory.rules import AHEAD_SECONDS, BUSY_SECONDS, MemoryRules
from engine.memory.seats import Hope


@dataclass(slots=True)
class Ahead:
    held: Holdings
    rules: MemoryRules
    departures: Departures
    arrivals: Arrivals
    _hopes: dict[tuple[str, str | None], Hope] = field(default_factory=dict)

    @property
    def wake_at(self) -> float:
        """When the next is to be forgotten."""
        return min([hope.until for hope in self._hopes.values()]) if self._hopes else math.inf

    @property
    def expects(self) -> bool:
        return bool(self._hopes)

    def expect(self, unit: str, device: str | None, now: float) -> list[Effect]:
        """Load it if that costs nobody anything: anywhere, soon; or a second copy on `device`, while there
        is work for it."""
        hope = Hope(unit, now + AHEAD_SECONDS if device is None else math.inf, device)
        if self._needless(hope, now):
            return []
        self._hopes[unit, device] = hope
        return [] if self.held.measured(unit) else self.arrivals.inspect(unit)

    def forget(self, unit: str) -> None:
        """An operator wants it to go."""
        self._hopes = {key: hope for key, hope in self._hopes.items() if hope.unit != unit}

    def advance(self, now: float) -> list[Effect]:
        """Load what may be loaded now; nothing while anybody waits for room."""
        if not self._hopes:
            return []
        effects: list[Effect] = []
        for key, hope in tuple(self._hopes.items()):
            if hope.until <= now or self._needless(hope, now):
                del self._hopes[key]
            elif not self.held.claims and self.held.measured(hope.unit):
                effects += self._place(hope, now)
        return effects

    def _needless(self, hope: Hope, now: float) -> bool:
        """Whether it is there, comes anyway, or cannot come."""
        unknown = not self.held.knows(hope.unit) or hope.device not in (None, *self.held.ledgers)
        if unknown or hope.unit in self.held.claims or hope.device in self.held.lost:
            return True
        of = self.held.adapts(hope.unit)
        if of is not None and not any(hope.device in (None, r.device) for r in self.held.ready(of)):
            return True
        copies = self.held.copies(hope.unit)
        if any(hope.device in (None, r.device) for r in copies if not r.yielding):
            return True
        if hope.device is not None and hope.unit not in self.held.wanted:
            return True
        mine = [r for r in self.held.residents.values() if r.unit == hope.unit]
        there = [r for r in mine if hope.device in (None, r.device)]
        return any(r.state is Residency.FAILED and now < r.since + self.rules.load_cooldown for r in there)

    def _place(self, hope: Hope, now: float) -> list[Effect]:
        unit, standing = hope.unit, self.departures.standing(now)
        device = hope.device or placement.home(self.held, unit, standing)
        if device is None or self.held.crowded(device) or not self._may(unit, device):
            del self._hopes[unit, hope.device]
            return []
        if hope.device is not None and not self.held.ready(unit):
            return []  # it would be the only copy, and for those there are claims
        residents = self.held.on(device)
        if any(r.unit == unit and r.resident for r in residents):
            return []  # it is still leaving
        if self.arrivals.loads_under_way(device) >= self.rules.loads_at_once:
            return []
        shortfall = self.held.shortfall(unit, device, at_least=self._work(device, now))
        if shortfall <= 0:
            del self._hopes[unit, hope.device]
            return self.arrivals.begin(
                unit, device, "expected" if hope.device is None else "second copy", now
            )
        missing = shortfall - sum(r.held_bytes for r in residents if r.yielding)
        others = [r for r in residents if r.unit != self.held.adapts(unit)]
        leaving = eviction.for_one_expected(missing, self._value(unit, now), others, standing)
        return [e for r in leaving or [] for e in self.departures.evict(r, f"for {unit}", now)]

    def _may(self, unit: str, device: str) -> bool:
        return device in self.held.devices(unit) and placement.fits(self.held, unit, device)

    def _work(self, device: str, now: float) -> int:
        """What batches took there of late: smaller ones would be a price that somebody pays."""
        most, at = self.held.busiest.get(device, (0, now))
        return most if now - at <= BUSY_SECONDS else 0

    def _value(self, unit: str, now: float) -> float:
        """What having it is worth, by the policy, from when it was last here or is elsewhere."""
        own = eviction.Standing(self.rules, now)
        mine = [r for r in self.held.residents.values() if r.unit == unit]
        return max((eviction.worth(r, own) for r in mine), default=0.0)
