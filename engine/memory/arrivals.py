"""How a unit becomes resident: inspected, claimed for, given room and loaded. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from engine.conversation import Ready, Unavailable
from engine.errors import Failure
from engine.events import ResidencyChanged
from engine.memory import bases, eviction, placement, turns
from engine.memory.asks import Asks
from engine.memory.departures import Departures
from engine.memory.effects import Answer, BeginLoad, DropHost, Effect, Inspect
from engine.memory.footprint import Footprint
from engine.memory.holdings import Holdings
from engine.memory.ledger import Line
from engine.memory.residency import Residency, Resident
from engine.memory.rules import CLAIM_SECONDS, LOOK_SECONDS, MemoryRules
from engine.memory.seats import Claim, Want
from engine.memory.turns import Bid


@dataclass(slots=True)
class Arrivals:
    held: Holdings
    rules: MemoryRules
    departures: Departures
    asks: Asks
    wake_at: float = math.inf
    """When a claim that waits for others to have had their turn should look again."""
    _looked_at: float = -math.inf
    _inspecting: set[str] = field(default_factory=set)

    def seek(self, unit: str, now: float) -> list[Effect]:
        """`unit` should be resident, unless it is or is about to be: at its seat, if it has one.

        `advance` then brings it there, and what is beneath it before.
        """
        of = self.held.adapts(unit)
        if of is None:
            return self._seek(unit, now)
        beneath = [effect for effect in self._seek(of, now) if not isinstance(effect, Ready)]
        failed = None if of in self.held.claims or self._served(of) else self._cooling(of, None, now)
        if failed is not None and failed.failure is not None:
            return [*beneath, *self.give_up(unit, failed.failure)]
        return [*beneath, *self._seek(unit, now)]

    def _seek(self, unit: str, now: float) -> list[Effect]:
        here = self.held.ready(unit)
        ready: list[Effect] = [Ready(r.unit, r.device) for r in here]
        pin = self.held.seat(unit)
        seat = pin.device if pin is not None and pin.device not in self.held.lost else None
        there = [*here, *self.held.coming(unit)]
        if there and (seat is None or any(r.device == seat for r in there)):
            return ready
        if failed := self._cooling(unit, seat, now):
            assert failed.failure is not None
            wait = failed.since + self.rules.load_cooldown - now
            return [*ready, *self.give_up(unit, replace_retry(failed.failure, wait))]
        self.held.claims.setdefault(unit, Claim(unit, now))
        return [*ready, *self.inspect(unit)] if not self.held.measured(unit) else ready

    def _cooling(self, unit: str, seat: str | None, now: float) -> Resident | None:
        """Where a load of it failed a short time ago."""
        for resident in self.held.residents.values():
            failed = resident.unit == unit and resident.state is Residency.FAILED
            soon = failed and now < resident.since + self.rules.load_cooldown
            if soon and seat in (None, resident.device):
                return resident
        return None

    def inspect(self, unit: str) -> list[Effect]:
        """What it takes is not known, or what is beneath it takes."""
        of = self.held.adapts(unit)
        needed = [u for u in (of, unit) if u is not None and u not in self.held.footprints]
        asked = [u for u in needed if u not in self._inspecting]
        self._inspecting.update(asked)
        return [Inspect(u) for u in asked]

    def inspected(self, unit: str, footprint: Footprint) -> None:
        self._inspecting.discard(unit)
        self.held.footprints[unit] = footprint

    def inspect_failed(self, unit: str, failure: Failure, now: float) -> list[Effect]:
        self._inspecting.discard(unit)
        devices = self.held.devices(unit)
        if not devices:
            return self.give_up(unit, failure)
        return self.fail(self.held.entry(unit, devices[0]), failure, now)

    def advance(self, now: float) -> list[Effect]:
        """Bring every claim as far as it can go now, in order of when their work is due.

        So a more urgent class goes first, by as much as its target is shorter, and nobody waits for ever.
        """
        self.wake_at, self._looked_at = math.inf, now
        if not self.held.claims:
            return []
        effects: list[Effect] = []
        kept: dict[str, str] = {}
        for claim in self._in_order():
            unit = claim.unit  # one before it may have been given up, and it with that one
            if unit in self.held.claims and self.held.measured(unit) and bases.there(self.held, unit):
                effects += self._place(claim, kept, now)
        return effects

    def advance_soon(self, now: float) -> list[Effect]:
        """`advance`, unless that was done a moment ago: then when the moment is over."""
        soon = self._looked_at + LOOK_SECONDS
        if now >= soon:
            return self.advance(now)
        if self.held.claims:
            self.wake_at = min(self.wake_at, soon)
        return []

    def _in_order(self) -> list[Claim]:
        """By due time; but none before an older one that room is being made for, or whoever left for that one
        would come back first, again and again."""
        placed: list[tuple[float, float, Claim]] = []
        promised = -math.inf
        for claim in sorted(self.held.claims.values(), key=lambda claim: claim.since):
            due = max(self._due(claim), promised)
            promised = due if claim.device else promised
            placed.append((due, claim.since, claim))
        return [claim for *_, claim in sorted(placed, key=lambda each: each[:2])]

    def _due(self, claim: Claim) -> float:
        want = self.held.wanted.get(claim.unit)
        if want is None:  # an operator waits
            return claim.since
        return min(want.due, claim.since + CLAIM_SECONDS)

    def _bid(self, claim: Claim, device: str) -> Bid:
        want = self.held.wanted.get(claim.unit, Want())
        waiting = sum(device in self.held.devices(unit) for unit in self.held.claims)
        return Bid(claim.since, self.held.shortfall(claim.unit, device), want.urgency, waiting)

    def _place(self, claim: Claim, kept: dict[str, str], now: float) -> list[Effect]:
        unit = claim.unit
        # A pin since the last look may have changed where it should be.
        device = placement.home(self.held, unit, self.departures.standing(now), claim.device)
        if device is None:
            passing = any(pin.passing for pin in self.held.pins.values())
            if passing and placement.fits_alone(self.held, unit):
                return []
            return self.give_up(unit, placement.nowhere(self.held, unit).failure())
        if self.held.crowded(device) and unit not in self.held.pins:
            return self.give_up(unit, placement.too_crowded(self.held, unit, device).failure())
        if claim.device != device:
            claim.device = None
        residents = self.held.on(device)
        if any(r.unit == unit and r.resident for r in residents):
            return []  # it is still leaving; `Unloaded` comes back here
        # What comes free for those who are due before is theirs: or the small keep the large out.
        before = [other for other, where in kept.items() if where == device]
        bid = self._bid(claim, device)
        if claim.device or turns.patient_until(bid, residents, self.rules) <= now:
            kept[unit] = device
        if self.loads_under_way(device) >= self.rules.loads_at_once:
            return []
        shortfall = self.held.shortfall(unit, device, before=before)
        missing = shortfall - sum(r.held_bytes for r in residents if r.yielding)
        if max(self.held.shortfall(unit, device), missing) <= 0:
            del self.held.claims[unit]
            kept.pop(unit, None)
            return self.begin(unit, device, "", now)
        made = self._make_room(claim, bid, device, before, missing, now)
        if claim.device:
            kept[unit] = device
        return made

    def _make_room(
        self, claim: Claim, bid: Bid, device: str, before: list[str], missing: int, now: float
    ) -> list[Effect]:
        unit = claim.unit
        others = [r for r in self.held.on(device) if r.unit != self.held.adapts(unit)]
        shortfall = self.held.shortfall(unit, device, before=before)
        leaving = eviction.victims(
            missing,
            bid,
            others,
            self.departures.standing(now),
            relief=lambda gone: shortfall - self.held.shortfall(unit, device, gone, before),
        )
        if isinstance(leaving, float):
            self.wake_at = min(self.wake_at, leaving)
            return []
        claim.device = device
        return [e for r in leaving for e in self.departures.evict(r, f"for {unit}", now)]

    def loads_under_way(self, device: str) -> int:
        return sum(r.state is Residency.LOADING for r in self.held.on(device))

    def begin(self, unit: str, device: str, why: str, now: float) -> list[Effect]:
        """There is room for it: hold the bytes and load."""
        resident = self.held.entry(unit, device)
        weights = resident.footprint.weights_bytes
        held = self.held.ledgers[device].hold(Line.WEIGHTS, unit, weights)
        assert held, "shortfall() said that it fits"
        resident.move(Residency.LOADING, now)
        resident.why = why
        going_there = any(r.state is Residency.LEAVING for r in self.held.copies(unit))
        in_time = device in self.held.tiered and not going_there
        resident.from_host = in_time and self.held.host.take(unit)
        return [BeginLoad(unit, device, weights, from_host=resident.from_host)]

    def came(self, resident: Resident, seconds: float, now: float) -> list[Effect]:
        """Its weights are on the device; whoever waits for it is not told yet."""
        resident.move(Residency.READY, now)
        eviction.used(resident, now, uses=0)
        if resident.base is not None:  # nor does that one leave for idleness now, and take this one along
            eviction.used(resident.base, now, uses=0)
        if resident.from_host:
            resident.restore_seconds = seconds
        else:
            resident.load_seconds = seconds
        resident.attempts, resident.failure = 0, None
        self.departures.watch(resident)
        changed = ResidencyChanged(
            resident.unit,
            resident.device,
            "loaded",
            now,
            seconds,
            resident.footprint.weights_bytes,
            reason=resident.why,
            thrash=self.departures.thrash.loaded(resident.key, now),
            from_host=resident.from_host,
        )
        return [changed, *self._out_of_host(resident)]

    def _out_of_host(self, resident: Resident) -> list[Effect]:
        """The copy in host memory has been read, or could not be."""
        if not resident.from_host:
            return []
        resident.from_host = False
        self.held.host.drop(resident.unit)
        return [DropHost(resident.unit)]

    def lost(self, resident: Resident, now: float) -> list[Effect]:
        """Its device is gone; a copy in host memory that was being read is dropped too."""
        resident.lose(now)
        return self._out_of_host(resident)

    def fail(self, resident: Resident, failure: Failure, now: float) -> list[Effect]:
        unit = resident.unit
        read = self._out_of_host(resident)
        resident.move(Residency.FAILED, now)
        resident.yielding = False
        resident.attempts += 1
        resident.failure = replace_retry(failure, self.rules.load_cooldown, attempts=resident.attempts)
        changed = ResidencyChanged(*resident.key, "failed", now, reason=failure.message)
        gone = self.asks.gone(resident.key)
        for adapter in bases.asked_over(self.held, resident):
            gone += self.give_up(adapter, resident.failure)
        pin = self.held.pins.get(unit)
        at_its_seat = pin is not None and pin.device == resident.device
        if self._served(unit) and not at_its_seat:
            return [*read, changed, *gone]
        return [*read, changed, *gone, *self.give_up(unit, resident.failure)]

    def give_up(self, unit: str, failure: Failure) -> list[Effect]:
        """Those who wait for it are told, and are not when it can be had elsewhere; then those who wait for
        what should be laid over it."""
        bases.unclaim(self.held, self.asks, unit)
        pins: list[Effect] = [Answer(ask, failure.error()) for ask in self.withdraw(unit)]
        if self._served(unit):
            return pins
        told = [Unavailable(unit, failure), *pins, *self.asks.refuse(unit, failure.error())]
        pinned = [u for u, pin in self.held.pins.items() if pin.asks]
        waiting = {*self.held.claims, *self.asks.pins, *self.asks.loads, *pinned}
        for adapter in self.held.adapters_of(unit, sorted(waiting)):
            told += self.give_up(adapter, failure)
        return told

    def withdraw(self, unit: str) -> list[int]:
        """A pin that nobody could fulfil yet is none: the one before stands. Those who wait for it."""
        pin = self.held.pins.get(unit)
        if pin is None or not pin.asks:
            return []
        if pin.former is not None:
            self.held.pins[unit] = pin.former
        else:
            del self.held.pins[unit]
        return pin.asks

    def _served(self, unit: str) -> bool:
        return bool(self.held.ready(unit) or self.held.coming(unit))


def replace_retry(failure: Failure, seconds: float, **details: int) -> Failure:
    """The same failure, worth another try after `seconds`."""
    return Failure(failure.kind, failure.message, failure.item, seconds, {**failure.details, **details})
