"""How long one that is there keeps its place against a claim, and how long a claim is patient. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.memory.residency import Resident
from engine.memory.rules import GROUPING, GUARD_SECONDS, LINGER_SHARE, MemoryRules
from engine.requests import ServiceClass


@dataclass(frozen=True, slots=True)
class Bid:
    """A claim for room, as those see it who may have to leave for it."""

    since: float
    alone_bytes: int
    """What must come free for it if nobody else claimed room."""
    urgency: ServiceClass = ServiceClass.STANDARD
    waiting: int = 1
    """Claims that wait for room on the device, this one among them."""


def lingers_until(resident: Resident, rules: MemoryRules) -> float:
    return resident.last_used + min(rules.min_residency, resident.reload_seconds * LINGER_SHARE)


def turn_ends(resident: Resident, rules: MemoryRules, waiting: int = 1) -> float:
    """Until when one that has come keeps its place if it has work: or those who cannot be there together
    would turn each other out before any work is done.

    One that has caught up with what waited for it keeps its place as a tenant does: all who wait pay the
    rent together, and when that has come to the price of the change of places, its turn is over (rent or
    buy, as in Karlin, Manasse, Rudolph and Sleator, 1988).
    """
    sharing = waiting if resident.caught_up else 1
    return resident.since + min(rules.min_residency, _price(resident.reload_seconds) / sharing)


def patient_until(bid: Bid, residents: Sequence[Resident], rules: MemoryRules) -> float:
    """Until when a claim leaves those in place who have work; never longer than `max_cold_wait`."""
    slowest = max((r.reload_seconds for r in residents), default=0.0)
    return bid.since + min(rules.max_cold_wait, _price(slowest) / bid.waiting)


def more_urgent(resident: Resident, bid: Bid, now: float) -> bool:
    """Whether it was of late used for a class that goes before the claim's."""
    urgency = _recent_class(resident, now)
    return urgency is not None and urgency < bid.urgency


def less_urgent(resident: Resident, bid: Bid, now: float) -> bool:
    urgency = _recent_class(resident, now)
    return urgency is not None and urgency > bid.urgency


def _recent_class(resident: Resident, now: float) -> ServiceClass | None:
    recent = [c for c, used in resident.used_for.items() if now - used < GUARD_SECONDS]
    return min(recent, default=None)


def _price(load_seconds: float) -> float:
    """Of a change of places, in seconds of work: so much that most of the time is work."""
    return max(0.1, 2 * GROUPING * load_seconds)
