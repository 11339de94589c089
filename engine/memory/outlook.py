"""What would happen, for whoever looks: who would leave, and what a pin would cost. Pure; decides nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.errors import InvalidInput
from engine.memory import eviction, placement
from engine.memory.eviction import Standing
from engine.memory.holdings import Holdings
from engine.memory.placement import Price
from engine.memory.residency import Resident
from engine.memory.seats import Seat
from engine.quantities import about


@dataclass(frozen=True, slots=True)
class Leaving:
    """One that may have to leave, and why it comes where it comes."""

    unit: str
    worth: float
    """By the eviction policy."""
    why: str


def leaving_order(held: Holdings, device: str, standing: Standing) -> list[Leaving]:
    """All that may be evicted from `device`, the first to leave first."""
    return [_leaving(r, standing) for r in eviction.order(held.on(device), standing)]


def would_leave(held: Holdings, device: str, size_bytes: int, standing: Standing) -> list[Leaving] | None:
    """Who would leave if so many bytes had to come free now; None when all that may do not suffice."""
    shortfall = size_bytes - held.ledgers[device].free_bytes
    leaving = eviction.choose(shortfall, held.on(device), standing, unwanted_only=False)
    return None if leaving is None else [_leaving(r, standing) for r in leaving]


def price(held: Holdings, unit: str, device: str | None, slots: int, standing: Standing) -> Price:
    """What such a pin would come to, if it were asked for now."""
    if error := placement.wrong_pin(held, unit, device, slots):
        return Price(error=error)
    if not held.measured(unit):
        return Price(error=InvalidInput(f"How much {unit} takes is not known before it was asked for once."))
    place = placement.seat_for(held, unit, device, slots, standing)
    if place is None:
        return Price(error=placement.no_room(held, unit, device, slots))
    pinned = replace(held, pins={**held.pins, unit: Seat(place, slots)})
    before = placement.displaced(held)
    return Price(place, tuple(u for u in placement.displaced(pinned) if u not in before))


def _leaving(resident: Resident, standing: Standing) -> Leaving:
    return Leaving(resident.unit, eviction.worth(resident, standing), _why(resident, standing))


def _why(resident: Resident, standing: Standing) -> str:
    if resident.busy:
        return "has work: leaves only when it has had its turn, and after its batches"
    if resident.key in standing.spare:
        return "another copy of it is ready"
    if resident.unit in standing.wanted:
        return "work waits for it: leaves only when it has had its turn"
    idle = standing.now - resident.last_used
    demand = eviction.faded(resident, standing.now)
    size = about(resident.footprint.weights_bytes)
    back = f"{resident.reload_seconds:.1f} s to come back"
    return f"idle for {idle:.0f} s; {demand:.1f} recent batches, {back}, {size}"
