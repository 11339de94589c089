"""Where a unit should be, and what to say when it can be nowhere. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.errors import EngineError, InvalidInput, NoRoom, ResourceExhausted, StillLoading
from engine.memory import eviction
from engine.memory.eviction import Standing
from engine.memory.holdings import Holdings
from engine.memory.ledger import Line
from engine.memory.residency import Residency
from engine.memory.rules import CROWDED_RETRY
from engine.quantities import about
from engine.units import base


@dataclass(frozen=True, slots=True)
class Price:
    """What a pin would come to: where it would be, and who would not fit any more; or why it cannot be."""

    device: str | None = None
    displaced: tuple[str, ...] = ()
    error: EngineError | None = None


def home(held: Holdings, unit: str, standing: Standing, at: str | None = None) -> str | None:
    """Where it is pinned; else `at`, where room is being made for it; else the best device where it fits
    beside what is pinned there; None when there is none. Of an adapter, where its base is."""
    pin = held.seat(unit)
    if pin is not None and pin.device not in held.lost:
        return pin.device
    fitting = [device for device in grounds(held, unit) if fits(held, unit, device)]
    if at in fitting:
        return at
    return best(held, unit, fitting, standing)


def grounds(held: Holdings, unit: str) -> list[str]:
    """Devices that the unit may use; of an adapter, those that have its base."""
    of = held.adapts(unit)
    devices = held.devices(unit)
    if of is None:
        return devices
    there = {resident.device for resident in held.ready(of)}
    return [device for device in devices if device in there]


def best(held: Holdings, unit: str, devices: list[str], standing: Standing) -> str | None:
    """The preferred kind; there where it is already, then where nobody has to leave and most is free, then
    where least demand has to leave. Devices that others crowd come last."""
    if len(devices) < 2:
        return devices[0] if devices else None
    kinds = held.facts(unit).device_kinds

    def place(device: str) -> tuple[bool, int, bool, tuple[int, float], int]:
        resident = held.residents.get((unit, device))
        return (
            held.crowded(device),
            kinds.index(held.kinds[device]),
            resident is None or not resident.resident,
            _demand_evicted(held, unit, device, standing),
            -held.ledgers[device].free_bytes,
        )

    return min(devices, key=place)


def _demand_evicted(held: Holdings, unit: str, device: str, standing: Standing) -> tuple[int, float]:
    """Of those who would have to leave for it: how many have work, and their recent demand."""
    before = [c.unit for c in held.claims.values() if c.device == device and c.unit != unit]
    shortfall = held.shortfall(unit, device, before=before)
    leaving = eviction.choose(shortfall, held.on(device), standing, unwanted_only=False)
    if leaving is None:
        return (1 << 30, math.inf)
    working = sum(eviction.at_work(r, standing) for r in leaving)
    return (working, sum(eviction.faded(r, standing.now) for r in leaving))


def fits(held: Holdings, unit: str, device: str, slots: int = 1) -> bool:
    """Whether there is room for it beside what is pinned there, once all others have left."""
    return held.pinned_bytes(device, {unit: slots}) <= held.ledgers[device].budget_bytes


def fits_alone(held: Holdings, unit: str) -> bool:
    """Whether some device could hold it if nothing were pinned."""
    return any(_alone(held, unit, d) <= held.ledgers[d].budget_bytes for d in held.devices(unit))


def _alone(held: Holdings, unit: str, device: str, slots: int = 1) -> int:
    context = held.ledgers[device].held(Line.CONTEXT, "")
    of = held.adapts(unit)
    weights = sum(held.footprints[u].weights_bytes for u in (of, unit) if u is not None)
    return context + weights + slots * held.floor(of or unit, device)


def seat_for(held: Holdings, unit: str, device: str | None, slots: int, standing: Standing) -> str | None:
    """Where a pin of `unit` has its place: on `device` if one is named; None when it does not fit.

    What others hold now counts for one that is not there yet: nobody can make them go.
    """
    open_to = _open_to(held, unit)
    may = [d for d in open_to if d == (device or d) and slots <= held.slots.get(d, slots)]
    fitting = [d for d in may if fits(held, unit, d, slots) and not _kept_out(held, unit, d, slots)]
    pin = held.pins.get(unit)
    if pin is not None and pin.device in fitting:
        return pin.device
    ready = [r.device for r in held.ready(held.adapts(unit) or unit) if r.device in fitting]
    return best(held, unit, ready or fitting, standing)


def _open_to(held: Holdings, unit: str) -> list[str]:
    """Devices where a pin of the unit may have its place."""
    tied = _tied(held, unit)
    return [device for device in held.devices(unit) if not tied or device == held.pins[tied].device]


def _tied(held: Holdings, unit: str) -> str | None:
    """What is pinned and must be where the unit is: its base, an adapter of it, or another of its base."""
    root = held.adapts(unit) or unit
    near = [u for u, pin in held.pins.items() if u != unit and pin.device not in held.lost]
    return next((u for u in near if root in (u, held.adapts(u))), None)


def _kept_out(held: Holdings, unit: str, device: str, slots: int) -> bool:
    resident = held.residents.get((unit, device))
    if resident is not None and resident.state is Residency.READY:
        return False
    ledger = held.ledgers[device]
    return held.pinned_bytes(device, {unit: slots}) > ledger.budget_bytes - ledger.held(Line.FOREIGN, "")


def displaced(held: Holdings) -> tuple[str, ...]:
    """Units of known size that can no longer be resident beside what is pinned."""
    known = [unit for unit in sorted(held.footprints) if unit not in held.pins and held.knows(unit)]
    others = [unit for unit in known if held.adapts(unit) is None and held.seat(unit) is None]
    nowhere = [u for u in others if not any(fits(held, u, d) for d in held.devices(u))]
    return tuple(u for u in nowhere if fits_alone(held, u))


def wrong_pin(held: Holdings, unit: str, device: str | None, slots: int) -> EngineError | None:
    """What is wrong with asking for such a pin at all."""
    if not held.knows(unit):
        return InvalidInput(f"This server makes no {unit} on its devices. Pin the model without its dtype.")
    may = held.devices(unit)
    if device is not None and device not in held.kinds:
        return InvalidInput(f"There is no device {device}; this server has {', '.join(held.kinds)}.")
    if device is not None and device in held.lost:
        return InvalidInput(
            f"{device} is lost: {held.lost[device]}. Pin it elsewhere, or restart the server."
        )
    if device is not None and device not in may:
        kinds = ", ".join(held.facts(unit).device_kinds)
        return InvalidInput(f"{unit} runs on {kinds}, and {device} is of kind {held.kinds[device]}.")
    if device is not None and (tied := _tied(held, unit)) and held.pins[tied].device != device:
        return InvalidInput(f"{tied} is pinned on {held.pins[tied].device}; pin {unit} there.")
    most = max((held.slots.get(d, slots) for d in ([device] if device else may)), default=slots)
    most = min(most, held.facts(held.adapts(unit) or unit).max_slots)
    if not 1 <= slots <= max(1, most):
        return InvalidInput(f"{unit} can have 1 to {most} slots there, not {slots}.")
    return None


def nowhere(held: Holdings, unit: str) -> EngineError:
    """Why it can be on no device, or that another version of it is pinned, to which whoever comes again
    goes."""
    if any(base(other) == base(unit) for other in held.pins):
        return StillLoading(f"{base(unit)} has changed its version; send it again.").after(1.0)
    return no_room(held, unit)


def no_room(held: Holdings, unit: str, device: str | None = None, slots: int = 1) -> EngineError:
    """Why it can be on no device, or not on `device`, with the arithmetic and what to do."""
    devices = [device] if device else held.devices(unit)
    if not devices:
        return _no_device(held, unit)
    roomy = [d for d in devices if _alone(held, unit, d, slots) <= held.ledgers[d].budget_bytes] or devices
    where = next((d for d in roomy if held.seats(d)), roomy[0])
    of, weights = held.adapts(unit), held.footprints[unit].weights_bytes
    floor = held.floor(of or unit, where)
    slots = held.seats(where, {unit: slots})[of or unit]  # its base may be pinned with several
    beside = f" beside the {_mib(held.footprints[of].weights_bytes)} of {of}" if of else ""
    ledger = held.ledgers[where]
    foreign = ledger.held(Line.FOREIGN, "")
    room = ledger.budget_bytes - ledger.held(Line.CONTEXT, "")
    times = f" ({slots} slots of {_mib(floor)})" if slots > 1 else ""
    text = (
        f"{unit} takes {_mib(weights)} of weights{beside} and at least {_mib(slots * floor)}{times} to run "
        f"in; {where} has {_mib(room)} for models"
    )
    needed = _alone(held, unit, where, slots)
    if needed > ledger.budget_bytes:
        memory = _mib(int(needed / (1 - ledger.headroom)) + 2**20)
        return NoRoom(f"{text}. Give the server at least {memory} of memory.")
    pins = sorted(u for d in devices for u in held.seats(d) if u not in (unit, of))
    if not pins or (foreign and fits(held, unit, where, slots)):
        others = f"{text}, of which other processes hold {_mib(foreign)}. Try again when they hold less."
        return NoRoom(others, pins=pins)
    together = _mib(held.pinned_bytes(where, {unit: slots}) - ledger.held(Line.CONTEXT, ""))
    told = f"{text}, of which {_pinned(held, unit, where)}. Together that is {together}."
    return NoRoom(f"{told} Unpin one, or give the server more memory.", pins=pins)


def _pinned(held: Holdings, unit: str, where: str) -> str:
    """What the pins beside `unit` need of a device: weights, the batches of several slots, and where it is
    more than the unit's own, the room that all other batches share."""
    root = held.adapts(unit) or unit
    seats = {u: slots for u, slots in sorted(held.seats(where).items()) if u not in (unit, root)}
    shares = [f"{u} {_mib(held.footprints[u].weights_bytes)}" for u in seats]
    apart = held.set_aside(where, root)
    shares += [f"{_mib(size)} for the {seats[u]} slots of {u}" for u, size in apart.items()]
    floors = {u: held.floor(u, where) for u in {*seats} - {*apart}}
    largest = max(floors, key=lambda u: floors[u], default=root)
    said = f"pins hold {', '.join(shares)}"
    if floors.get(largest, 0) <= held.floor(root, where):
        return said
    return f"{said}, and batches share one room, {_mib(floors[largest])} for {largest}"


def _no_device(held: Holdings, unit: str) -> EngineError:
    kinds = held.facts(unit).device_kinds
    gone = [f"{d} is lost ({why})" for d, why in held.lost.items() if held.kinds[d] in kinds]
    if gone:
        return ResourceExhausted(f"{unit} has no device any more: {'; '.join(gone)}. Restart the server.")
    return NoRoom(f"{unit} runs on {', '.join(kinds)}; this server has {', '.join(held.kinds.values())}.")


def too_crowded(held: Holdings, unit: str, device: str) -> EngineError:
    """What is not there yet does not come while others hold the card."""
    text = f"{unit} cannot be loaded now. {alarm(held, device)} Try again later."
    return ResourceExhausted(text).after(CROWDED_RETRY)


def alarm(held: Holdings, device: str) -> str:
    """What an operator should know of a device at once; empty when all is well."""
    if device in held.lost:
        broken = [unit for unit, pin in held.pins.items() if pin.device == device]
        pins = f" These pins have no place: {', '.join(broken)}." if broken else ""
        return f"{device} is lost: {held.lost[device]}.{pins} Restart the server to use it again."
    if not held.crowded(device):
        return ""
    ledger = held.ledgers[device]
    foreign, pinned = ledger.held(Line.FOREIGN, ""), held.pinned_bytes(device)
    return (
        f"Other processes hold {_mib(foreign)} of {device}, and its pins need {_mib(pinned)} of the "
        f"{_mib(ledger.budget_bytes)} that models may use: nothing else is loaded there."
    )


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.0f} MiB" if size_bytes >= 2**20 else about(size_bytes)
