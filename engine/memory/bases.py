"""What adapters ask of the units that they are laid over, beside those units' own work. Pure."""

from __future__ import annotations

from engine.memory.asks import Asks
from engine.memory.holdings import Holdings
from engine.memory.residency import Resident


def sought(held: Holdings, asks: Asks, unit: str) -> bool:
    """Whether anybody waits for it, or for what is to be laid over it."""
    return unit in held.wanted or unit in asks.loads or bool(held.adapters_of(unit, held.claims))


def unclaim(held: Holdings, asks: Asks, unit: str) -> None:
    """Nobody waits for it any more: nor is what is beneath it to come, if that was for it alone."""
    held.claims.pop(unit, None)
    of = held.adapts(unit)
    if of is not None and not sought(held, asks, of) and held.seat(of) is None:
        held.claims.pop(of, None)


def asked_over(held: Holdings, resident: Resident) -> list[str]:
    """Adapters that somebody waits to have pinned over it, where it is."""
    here = [unit for unit, pin in held.pins.items() if pin.asks and pin.device == resident.device]
    return held.adapters_of(resident.unit, here)


def there(held: Holdings, unit: str) -> bool:
    """Whether it may come: at once where it is no adapter, else where leases of its base can be had."""
    of, pin = held.adapts(unit), held.pins.get(unit)
    seat = None if pin is None or pin.device in held.lost else pin.device
    return of is None or any(seat in (None, resident.device) for resident in held.ready(of))
