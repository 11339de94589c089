"""What the memory manager does on each message: messages in, effects out. Pure.

The live memory manager, the tests and the planner drive this one object. It and its parts are the only
writers of residency, leases and pins; each is a fact about a unit on a device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.conversation import Denied, Left, Need, Ready, Release
from engine.errors import Failure, InvalidInput
from engine.events import ResidencyChanged
from engine.memory import bases, outlook
from engine.memory.ahead import Ahead
from engine.memory.arrivals import Arrivals
from engine.memory.asks import Asks, PinAsk
from engine.memory.departures import Departures
from engine.memory.effects import Abandon, Answer, DropHost, Effect
from engine.memory.footprint import Footprint
from engine.memory.holdings import Holdings
from engine.memory.ledger import Line
from engine.memory.lending import Lending
from engine.memory.outlook import Leaving
from engine.memory.pinning import Pinning
from engine.memory.placement import Price
from engine.memory.residency import Residency, Resident
from engine.memory.rules import MemoryRules
from engine.memory.seats import Want
from engine.memory.workspace import WorkspaceCurve
from engine.requests import ServiceClass


@dataclass(slots=True)
class Custody:
    held: Holdings
    rules: MemoryRules
    asks: Asks = field(default_factory=Asks)
    departures: Departures = field(init=False)
    arrivals: Arrivals = field(init=False)
    pinning: Pinning = field(init=False)
    lending: Lending = field(init=False)
    ahead: Ahead = field(init=False)

    def __post_init__(self) -> None:
        self.departures = Departures(self.held, self.rules, self.asks)
        self.arrivals = Arrivals(self.held, self.rules, self.departures, self.asks)
        self.pinning = Pinning(self.held, self.departures, self.arrivals, self.asks)
        self.lending = Lending(self.held, self.departures)
        self.ahead = Ahead(self.held, self.rules, self.departures, self.arrivals)

    @property
    def wake_at(self) -> float:
        """When `on_wake` should be called, if nothing comes before."""
        return min(
            self.lending.wake_at,
            self.departures.wake_at,
            self.pinning.wake_at,
            self.arrivals.wake_at,
            self.ahead.wake_at,
        )

    # From the batcher.

    def on_wanted(
        self,
        unit: str,
        now: float,
        urgency: ServiceClass = ServiceClass.STANDARD,
        due: float = math.inf,
        there: Collection[str] = (),
    ) -> list[Effect]:
        """Work waits for the unit, or what waits while it is not there has become more or less urgent.

        `there` are the devices of which the batcher knows that leases can be had.
        """
        known = unit in self.held.wanted
        self.held.wanted[unit] = Want(urgency, due)
        if known and self.held.ready(unit):
            # it was denied a lease, and is told when it may ask again
            return self._advance(now, self.arrivals.advance_soon)
        if there and not self.held.pins and self.held.adapts(unit) is None:
            ready = self.held.ready(unit)
            if ready and all(resident.device in there for resident in ready):
                return self._advance(now)  # it has what `seek` would tell
        return [*self.arrivals.seek(unit, now), *self._advance(now)]

    def on_unwanted(self, unit: str, now: float) -> list[Effect]:
        self.held.wanted.pop(unit, None)
        for resident in self.held.copies(unit):
            resident.owed_bytes = 0
            self.departures.rests(resident)
        if not bases.sought(self.held, self.asks, unit) and self.held.seat(unit) is None:
            bases.unclaim(self.held, self.asks, unit)
        return self._advance(now, self.arrivals.advance_soon)

    def on_expected(self, unit: str, now: float) -> list[Effect]:
        return [*self.ahead.expect(unit, None, now), *self._advance(now)]

    def on_spread(self, unit: str, device: str, now: float) -> list[Effect]:
        return [*self.ahead.expect(unit, device, now), *self._advance(now)]

    def on_need(self, need: Need, now: float) -> list[Effect]:
        """Grant a lease if the unit is there and memory for the batch is free."""
        resident = self.held.residents.get((need.unit, need.device))
        if resident is not None and resident.lends:
            return self.lending.lend(need, resident, now)
        denied = Denied(need.slot, need.unit, need.device, "loading")
        return [denied, *self.arrivals.seek(need.unit, now), *self._advance(now)]

    def on_release(self, release: Release, now: float) -> list[Effect]:
        """A lease is over, and whoever waited for bytes may ask again."""
        device = release.lease.device
        if device in self.held.lost:
            return []
        resident = self.held.residents[release.lease.unit, device]
        ended = self.lending.end(release, resident, now)
        for each in (*[a for a in resident.adapters if a.resident], resident):
            ended += self.departures.leave_if_idle(each, now)
            self.departures.rests(each)
        settled = self._advance(now, self.arrivals.advance_soon)
        return [*ended, *self.lending.feed(device), *settled]

    def on_lost(self, device: str, reason: str, now: float) -> list[Effect]:
        """All that was on the device is gone, and is sought elsewhere where anybody wants it."""
        if device in self.held.lost:
            return []
        self.held.lost[device] = reason
        effects = [e for resident in self.held.on(device) for e in self._lose(resident, reason, now)]
        self.held.ledgers[device].clear()
        self.lending.forget(device)
        for claim in self.held.claims.values():
            claim.device = None if claim.device == device else claim.device
        self.pinning.forget(device)
        for unit in sorted({*self.held.wanted, *self.asks.loads}):
            effects += self.arrivals.seek(unit, now)
        return [*effects, *self._advance(now)]

    def _lose(self, resident: Resident, reason: str, now: float) -> list[Effect]:
        unit, device = resident.key
        state, weights = resident.state, resident.footprint.weights_bytes
        was_there = resident.resident
        effects = [*self.asks.gone(resident.key), *self.arrivals.lost(resident, now)]
        if state is Residency.READY:
            effects += [Left(unit, device), Abandon(unit, device)]
        if state is Residency.LEAVING and unit in self.held.host:
            self.held.host.drop(unit)  # its way there led through the device
        if was_there:
            effects.append(ResidencyChanged(unit, device, "lost", now, 0.0, weights, reason))
        return effects

    # From threads and samplers.

    def on_inspected(self, unit: str, footprint: Footprint, now: float) -> list[Effect]:
        self.arrivals.inspected(unit, footprint)
        return [*self.pinning.inspected(unit, now), *self._advance(now)]

    def on_inspect_failed(self, unit: str, failure: Failure, now: float) -> list[Effect]:
        return [*self.arrivals.inspect_failed(unit, failure, now), *self._advance(now)]

    def on_loaded(self, unit: str, device: str, seconds: float, now: float) -> list[Effect]:
        if device in self.held.lost:
            return [Abandon(unit, device)]
        resident = self.held.residents[unit, device]
        told = self.arrivals.came(resident, seconds, now)
        if resident.yielding:
            told += self.departures.evict(resident, resident.parting, now)
        else:
            answers = [*self.asks.loaded(unit), *self.pinning.hold(resident, now)]
            told = [Ready(unit, device, seconds), *told, *answers]
        return [*told, *self.lending.feed(device), *self._advance(now)]

    def on_load_failed(self, unit: str, device: str, failure: Failure, now: float) -> list[Effect]:
        if device in self.held.lost:
            return []
        self.held.ledgers[device].hold(Line.WEIGHTS, unit, 0)
        resident = self.held.residents[unit, device]
        failed = self.arrivals.fail(resident, failure, now)
        failed += self.departures.leave_if_idle(resident.base or resident, now)
        return [*failed, *self.lending.feed(device), *self._advance(now)]

    def on_unloaded(self, unit: str, device: str, now: float, kept_bytes: int = 0) -> list[Effect]:
        """`kept_bytes` of its weights are in host memory now."""
        if device in self.held.lost:
            return [DropHost(unit)] if kept_bytes and unit not in self.held.host else []
        resident = self.held.residents[unit, device]
        told = self.departures.gone(resident, kept_bytes, now)
        if bases.sought(self.held, self.asks, unit):
            told += self.arrivals.seek(unit, now)
        return [*told, *self.lending.feed(device), *self._advance(now)]

    def on_observed(
        self, device: str, foreign_bytes: int, now: float, allocated_bytes: int = 0
    ) -> list[Effect]:
        """What other processes hold on the card: it lowers what is free, and evicts nobody by itself.

        `allocated_bytes` is what our own allocator holds, 0 where nobody can tell.
        """
        if device in self.held.lost:
            return []
        self.held.ledgers[device].observe_foreign(foreign_bytes)
        if allocated_bytes:
            self.held.allocated[device] = allocated_bytes
        return [*self.lending.feed(device), *self._advance(now)]

    def on_wake(self, now: float) -> list[Effect]:
        return self._advance(now)

    # From operators.

    def on_load(self, unit: str, ask: int, now: float) -> list[Effect]:
        if not self.held.knows(unit):
            return [Answer(ask, InvalidInput(f"This server makes no {unit} on its devices."))]
        if self.held.ready(unit):
            return [Answer(ask)]
        self.asks.loads.setdefault(unit, []).append(ask)
        return [*self.arrivals.seek(unit, now), *self._advance(now)]

    def on_unload(self, unit: str, ask: int, now: float, reason: str = "by an operator") -> list[Effect]:
        """It is gone when the answer comes; a load under way is finished first."""
        pinned = [u for u in (unit, *self.held.adapters_of(unit, self.held.pins)) if u in self.held.pins]
        if pinned:
            return [Answer(ask, InvalidInput(f"{pinned[0]} is pinned; unpin it first."))]
        self.ahead.forget(unit)
        error = InvalidInput(f"{unit} was unloaded before it was ready.")
        effects: list[Effect] = [Answer(each, error) for each in self.asks.loads.pop(unit, [])]
        if not bases.sought(self.held, self.asks, unit):
            bases.unclaim(self.held, self.asks, unit)
        if unit in self.held.host:
            self.held.host.drop(unit)
            effects.append(DropHost(unit))
        return [*effects, *self.departures.send_away(unit, ask, reason, now), *self._advance(now)]

    def on_pin(
        self,
        unit: str,
        ask: int,
        now: float,
        device: str | None = None,
        min_slots: int = 1,
        passing: bool = False,
    ) -> list[Effect]:
        """Pins are guarantees: one that does not fit beside the others is refused with the arithmetic."""
        pinned = self.pinning.pin(unit, PinAsk(ask, device, min_slots, passing), now)
        return [*pinned, *self._advance(now)]

    def on_unpin(self, unit: str, ask: int, now: float) -> list[Effect]:
        return [*self.pinning.unpin(unit, ask), *self._advance(now)]

    def _advance(self, now: float, arrive: Callable[[float], list[Effect]] | None = None) -> list[Effect]:
        """Bring everybody as far as they can go now; claims by `arrive`, where that need not be at once."""
        arrive = arrive or self.arrivals.advance
        if self._at_rest(now):
            return arrive(now)
        return [
            *self.lending.look_again(now),
            *self.departures.expire(now),
            *self.pinning.advance(now),
            *arrive(now),
            *self.ahead.advance(now),
            *self.departures.unyield(self.lending.hungry()),
        ]

    def _at_rest(self, now: float) -> bool:
        """Whether nothing is going on but what is asked for: as after most batches."""
        held = self.held
        if held.claims or held.pins or now >= self.departures.wake_at or self.pinning.wake_at < math.inf:
            return False
        if self.lending.starved or self.ahead.expects:
            return False
        return True not in [resident.yielding for resident in held.residents.values()]

    # For whoever looks, and for the next start.

    def leaving_order(self, device: str, now: float) -> list[Leaving]:
        return outlook.leaving_order(self.held, device, self.departures.standing(now))

    def would_leave(self, device: str, size_bytes: int, now: float) -> list[Leaving] | None:
        return outlook.would_leave(self.held, device, size_bytes, self.departures.standing(now))

    def price(self, unit: str, now: float, device: str | None = None, min_slots: int = 1) -> Price:
        return outlook.price(self.held, unit, device, min_slots, self.departures.standing(now))

    def thrashing(self, unit: str, device: str, now: float) -> bool:
        return self.departures.thrash.thrashing((unit, device), now)

    def learned(self) -> dict[tuple[str, str], dict[str, Any]]:
        """What batches were seen to take, by unit and device, as plain data."""
        return {key: curve.points() for key, curve in self.held.workspaces.items() if curve}

    def learn(self, points: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
        """Start from what an earlier run learned."""
        for key, known in points.items():
            self.held.workspaces[key] = WorkspaceCurve()
            self.held.workspaces[key].learn(known)
