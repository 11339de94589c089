"""Pins are guarantees: who has a seat, where, and what becomes of it. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.errors import InvalidInput
from engine.memory import bases, eviction, placement
from engine.memory.arrivals import Arrivals
from engine.memory.asks import Asks, PinAsk
from engine.memory.departures import Departures
from engine.memory.effects import Answer, Effect
from engine.memory.holdings import Holdings
from engine.memory.residency import Residency, Resident
from engine.memory.seats import Seat


@dataclass(slots=True)
class Pinning:
    held: Holdings
    departures: Departures
    arrivals: Arrivals
    asks: Asks
    wake_at: float = math.inf
    """When a pin whose load failed, though it had held before, is tried again."""

    def pin(self, unit: str, asked: PinAsk, now: float) -> list[Effect]:
        """One that does not fit beside the others is refused with the arithmetic; the old one stays."""
        if error := placement.wrong_pin(self.held, unit, asked.device, asked.slots):
            return [Answer(asked.ask, error)]
        if not self.held.measured(unit):
            self.asks.pins.setdefault(unit, []).append(asked)
            return self.arrivals.inspect(unit)
        standing = self.departures.standing(now)
        device = placement.seat_for(self.held, unit, asked.device, asked.slots, standing)
        if device is None:
            return [Answer(asked.ask, placement.no_room(self.held, unit, asked.device, asked.slots))]
        told = self._take(unit, device, asked)
        resident = self.held.residents.get((unit, device))
        if resident is not None:
            told += self.departures.keep_pinned(resident)
            if resident.state is Residency.READY:
                return [*told, *self.hold(resident, now)]
        return [*told, *self.arrivals.seek(unit, now)]

    def inspected(self, unit: str, now: float) -> list[Effect]:
        """Pins that waited for its size, and those of its adapters."""
        waiting = [unit, *self.held.adapters_of(unit, self.asks.pins)]
        asked = [(each, ask) for each in waiting for ask in self.asks.pins.pop(each, [])]
        return [effect for each, ask in asked for effect in self.pin(each, ask, now)]

    def _take(self, unit: str, device: str, asked: PinAsk) -> list[Effect]:
        """The seat is its own from now on; the one before is kept until it is there."""
        old = self.held.pins.get(unit)
        if old is not None and (old.device, old.slots) == (device, asked.slots):
            old.asks.append(asked.ask)
            old.passing = old.passing and asked.passing
            return []
        told: list[Effect] = []
        former = old
        if old is not None and old.asks:
            error = InvalidInput(f"{unit} was pinned otherwise before it was ready.")
            told, former = [Answer(ask, error) for ask in old.asks], old.former
        self.held.pins[unit] = Seat(device, asked.slots, [asked.ask], former, asked.passing)
        return told

    def hold(self, resident: Resident, now: float) -> list[Effect]:
        """It is ready: if that is at its seat, it is pinned from now on."""
        pin = self.held.pins.get(resident.unit)
        if pin is None or pin.device != resident.device:
            return []
        resident.pinned = True
        self.held.claims.pop(resident.unit, None)  # its seat may have come to it
        if pin.former is not None and pin.former.device != pin.device:
            self._let_go(resident.unit, pin.former.device)
        pin.former = None
        asks, pin.asks = pin.asks, []
        return [*map(Answer, asks), *self._clear(resident, now)]

    def _clear(self, resident: Resident, now: float) -> list[Effect]:
        """Who is idle where room is kept for its batches leaves; who has work does when they need it."""
        device, unit = resident.device, resident.unit
        missing = self.held.reserved(device) - self.held.ledgers[device].free_bytes
        standing = self.departures.standing(now)
        leaving = eviction.choose(missing, self.held.on(device), standing, unwanted_only=True) or []
        return [e for r in leaving for e in self.departures.evict(r, f"for the slots of {unit}", now)]

    def _let_go(self, unit: str, device: str) -> None:
        if (resident := self.held.residents.get((unit, device))) is not None:
            resident.pinned = False
            self.departures.watch(resident)

    def unpin(self, unit: str, ask: int) -> list[Effect]:
        """It may be evicted again; those who still wait for it to be pinned are told that it is not."""
        error = InvalidInput(f"{unit} was unpinned before it was ready.")
        waiting = [asked.ask for asked in self.asks.pins.pop(unit, [])]
        if (pin := self.held.pins.pop(unit, None)) is not None:
            waiting += pin.asks
            for seat in (pin, pin.former):
                if seat is not None:
                    self._let_go(unit, seat.device)
        if not bases.sought(self.held, self.asks, unit):
            bases.unclaim(self.held, self.asks, unit)
        return [*[Answer(each, error) for each in waiting], Answer(ask)]

    def forget(self, device: str) -> None:
        """The device is lost: nobody goes back there."""
        for pin in self.held.pins.values():
            if pin.former is not None and pin.former.device == device:
                pin.former = None

    def advance(self, now: float) -> list[Effect]:
        """Whoever has a seat should be there, or on its way; whose device is lost, elsewhere."""
        self.wake_at = math.inf
        effects: list[Effect] = []
        for unit, pin in tuple(self.held.pins.items()):
            if pin.device in self.held.lost:
                effects += self._move(unit, pin, now)
            elif pin.asks or not self._holds(unit, pin.device):
                effects += self._see_to(unit, pin, now)
        return effects

    def _holds(self, unit: str, device: str) -> bool:
        resident = self.held.residents.get((unit, device))
        return resident is not None and resident.pinned

    def _see_to(self, unit: str, pin: Seat, now: float) -> list[Effect]:
        of = self.held.adapts(unit)
        for each in (unit,) if of is None else (of, unit):
            resident = self.held.residents.get((each, pin.device))
            if each in self.held.claims or (resident is not None and resident.resident):
                continue
            if resident is not None and resident.state is Residency.FAILED:
                again = resident.since + self.arrivals.rules.load_cooldown
                if now < again:
                    self.wake_at = min(self.wake_at, again)
                    return []
            return self.arrivals.seek(unit, now)
        return []

    def _move(self, unit: str, pin: Seat, now: float) -> list[Effect]:
        """One that held stays until there is a place, and is shown; one still asked for is refused."""
        device = placement.seat_for(self.held, unit, None, pin.slots, self.departures.standing(now))
        if device is None:
            error = placement.no_room(self.held, unit)
            return [Answer(ask, error) for ask in self.arrivals.withdraw(unit)]
        pin.device = device
        resident = self.held.residents.get((unit, device))
        kept = self.departures.keep_pinned(resident) if resident is not None else []
        if resident is not None and resident.state is Residency.READY:
            return [*kept, *self.hold(resident, now)]
        return [*kept, *self.arrivals.seek(unit, now)]
