"""Which lane runs next on a free slot: class first, then fair share, then who is about to be late. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from engine.requests import ServiceClass

MEMORY_SECONDS = 30.0
"""Device time spent longer ago than a few of these no longer counts between classes."""


class Why(StrEnum):
    """What puts a lane before the others that wait."""

    SHARE = "has had least of its share"
    HURRY = "can only be on time by going now"
    FLOOR = "its class has had less than its floor"


class Candidate(NamedTuple):
    """A lane that could run now."""

    unit: str
    service_class: ServiceClass
    due: float
    """When its most urgent job should be done."""
    seconds: float
    """Predicted run time of the batch it would send."""
    held_until: float = -math.inf
    """It would rather wait so long for company, unless the slot has something else to do."""


@dataclass(slots=True)
class FairShare:
    """Device-seconds shared by weight: start-time fair queueing over what was really spent.

    Each unit has a virtual time in each class, its device-seconds divided by its weight; the smallest
    goes first. A unit that comes back after a pause starts from the virtual time of those that stayed,
    so idling earns nothing (Goyal, Vin and Cheng, 1996). Classes keep their own clocks: work that stood
    behind a more urgent class has earned nothing against its peers.
    """

    floors: Mapping[ServiceClass, float] = field(default_factory=dict)
    """Least share of device time that a class gets while it waits, whatever is more urgent."""
    _virtual: dict[tuple[ServiceClass, str], float] = field(default_factory=dict)
    _now_virtual: dict[ServiceClass, float] = field(default_factory=dict)
    _spent: dict[ServiceClass, float] = field(default_factory=dict)
    _decayed_at: float = 0.0

    def wake(self, unit: str, service_class: ServiceClass) -> None:
        """`unit` has work of this class again after it had none."""
        now_virtual = self._now_virtual.get(service_class, 0.0)
        key = service_class, unit
        self._virtual[key] = max(self._virtual.get(key, now_virtual), now_virtual)

    def charge(
        self, unit: str, service_class: ServiceClass, seconds: float, weight: float, now: float
    ) -> None:
        """`unit` held a slot for `seconds`; negative to correct an earlier charge."""
        key = service_class, unit
        had = self._virtual.get(key)
        if had is None:
            had = self._now_virtual.get(service_class, 0.0)
        self._virtual[key] = had + seconds / weight
        fade = math.exp(min(0.0, self._decayed_at - now) / MEMORY_SECONDS)
        spent = self._spent
        for each in spent:
            spent[each] *= fade
        spent[service_class] = spent.get(service_class, 0.0) + seconds
        self._decayed_at = max(now, self._decayed_at)

    def virtual(self, unit: str, service_class: ServiceClass) -> float:
        had = self._virtual.get((service_class, unit))
        return self._now_virtual.get(service_class, 0.0) if had is None else had

    def choose(self, candidates: Sequence[Candidate], now: float) -> Candidate | None:
        """The lane to run now, or None when there is none."""
        if not candidates:
            return None
        if len(candidates) == 1:
            chosen, least = candidates[0], self.virtual(candidates[0].unit, candidates[0].service_class)
        else:
            chosen, _, least = self.pick(candidates, now)
        of_class = chosen.service_class
        self._now_virtual[of_class] = max(self._now_virtual.get(of_class, 0.0), least)
        return chosen

    def pick(self, candidates: Sequence[Candidate], now: float) -> tuple[Candidate, Why, float]:
        """The lane to run now, why that one, and the least virtual time of its class. Changes nothing."""
        chosen_class, under = self._class(candidates)
        peers = [c for c in candidates if c.service_class == chosen_class]
        virtual = {c.unit: self.virtual(c.unit, chosen_class) for c in peers}
        least = min(virtual.values())
        # Hurry is for those within a run of their share: one that always hurries would take all of it.
        within = [c for c in peers if virtual[c.unit] <= least + c.seconds]
        if hurried := _about_to_be_late(within, now):
            return hurried, Why.HURRY, least
        chosen = min(peers, key=lambda c: (virtual[c.unit], c.due))
        return chosen, Why.FLOOR if under else Why.SHARE, least

    def _class(self, candidates: Sequence[Candidate]) -> tuple[ServiceClass, bool]:
        """The class to serve now, and whether that is for its floor."""
        waiting = sorted({c.service_class for c in candidates})
        total = sum(self._spent.values())
        for service_class in waiting[1:]:
            floor = self.floors.get(service_class, 0.0)
            if total and self._spent.get(service_class, 0.0) < floor * total:
                return service_class, True
        return waiting[0], False


def _about_to_be_late(peers: Sequence[Candidate], now: float) -> Candidate | None:
    """Who can still be on time, but only by going now. What is late already waits for its share."""
    close = [c for c in peers if 0 <= c.due - now < c.seconds]
    return min(close, key=lambda c: c.due) if close else None
