"""Who leaves and how: no more leases first, then no more work, then no more weights. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

from engine.conversation import Left, Ready
from engine.errors import InvalidInput
from engine.events import ResidencyChanged
from engine.memory import eviction
from engine.memory.asks import Asks
from engine.memory.effects import Answer, BeginUnload, DropHost, Effect
from engine.memory.eviction import Standing
from engine.memory.holdings import Holdings
from engine.memory.ledger import Line
from engine.memory.residency import Residency, Resident
from engine.memory.rules import MemoryRules
from engine.memory.thrash import Thrash


@dataclass(slots=True)
class Departures:
    held: Holdings
    rules: MemoryRules
    asks: Asks
    thrash: Thrash = field(default_factory=Thrash)
    wake_at: float = math.inf
    """When one that nobody uses may have to leave."""

    def standing(self, now: float) -> Standing:
        return Standing(self.rules, now, self.held.wanted, self.held.spare())

    def evict(self, resident: Resident, reason: str, now: float) -> list[Effect]:
        """No more leases from now on; the weights go when the last lease ends, and after its adapters'."""
        before = self._evict_adapters(resident, reason, now)
        resident.yielding = True
        event = "unloaded" if self.asks.unloads_of(resident.key) else "evicted"
        weights = resident.footprint.weights_bytes
        going = self.leave_if_idle(resident, now)
        left = [] if going or resident.lends else [Left(*resident.key)]
        changed = ResidencyChanged(resident.unit, resident.device, event, now, 0.0, weights, reason)
        return [*before, *left, changed, *going]

    def _evict_adapters(self, resident: Resident, reason: str, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for adapter in resident.adapters:
            if adapter.state is Residency.LOADING:
                adapter.yielding, adapter.parting = True, reason
            elif adapter.state is Residency.READY and not adapter.yielding:
                effects += self.evict(adapter, reason, now)
        return effects

    def send_away(self, unit: str, ask: int, reason: str, now: float) -> list[Effect]:
        """An operator or a change of the catalogue wants it to go: it is gone when that is answered. A load
        is finished first."""
        there = self.held.copies(unit)
        if not there:
            return [Answer(ask)]
        self.asks.unloads[ask] = {resident.key for resident in there}
        effects: list[Effect] = []
        for resident in there:
            if resident.state is Residency.LOADING:
                resident.yielding, resident.parting = True, reason
            elif not resident.yielding:
                effects += self.evict(resident, reason, now)
        return effects

    def evict_idle(self, beside: Resident, reason: str, now: float) -> list[Effect]:
        """One that has no work leaves, of least worth first; the next time it is asked, the next one."""
        others = [r for r in self.held.on(beside.device) if r is not beside]
        if any(r.state is Residency.LEAVING for r in others):
            return []
        leaving = eviction.choose(1, others, self.standing(now), unwanted_only=True)
        return [effect for resident in leaving or [] for effect in self.evict(resident, reason, now)]

    def leave_if_idle(self, resident: Resident, now: float) -> list[Effect]:
        if not resident.yielding or resident.busy or resident.state is not Residency.READY or resident.laden:
            return []
        resident.move(Residency.LEAVING, now)
        resident.owed_bytes = 0
        asked = self.asks.unloads_of(resident.key)
        if not asked:
            self.thrash.evicted(resident.key)
        kept, dropped = (False, []) if asked else self._keep(resident, now)
        drops = [DropHost(unit) for unit in dropped]
        return [Left(*resident.key), *drops, BeginUnload(*resident.key, keep=kept)]

    def _keep(self, resident: Resident, now: float) -> tuple[bool, list[str]]:
        """Whether its weights go to host memory, and whose are dropped there for it."""
        others = [r for r in self.held.copies(resident.unit) if r is not resident]
        if resident.device not in self.held.tiered or others or resident.base is not None:
            return False, []  # an adapter is small, and read again from where it lies
        return self.held.host.keep(resident.unit, resident.footprint.weights_bytes, now)

    def gone(self, resident: Resident, kept_bytes: int, now: float) -> list[Effect]:
        """Its weights have left the device, for host memory or for good."""
        asked = self.asks.gone(resident.key)
        resident.move(Residency.ABSENT, now)
        resident.yielding = resident.pinned = False
        self.held.ledgers[resident.device].hold(Line.WEIGHTS, resident.unit, 0)
        if resident.base is not None:
            return [*asked, *self.leave_if_idle(resident.base, now)]
        if resident.device not in self.held.tiered:
            return asked
        return [*asked, *self._book(resident.unit, kept_bytes, now)]

    def _book(self, unit: str, kept_bytes: int, now: float) -> list[Effect]:
        """What it really takes in host memory, which may be more or less than its weights' bytes."""
        host = self.held.host
        if unit not in host:  # dropped for another before it was there
            return [DropHost(unit)] if kept_bytes else []
        fits, dropped = host.keep(unit, kept_bytes, now) if kept_bytes else (False, [])
        if not fits:
            host.drop(unit)
            dropped = [unit]
        return [DropHost(name) for name in dropped]

    def unyield(self, hungry: Collection[str]) -> list[Effect]:
        """A unit that was to leave for a claim that is gone stays, but not where batches are `hungry`."""
        effects: list[Effect] = []
        if not any(resident.yielding for resident in self.held.residents.values()):
            return effects
        making_room = {claim.device for claim in self.held.claims.values()}
        making_room.update(hungry)
        for resident in self.held.residents.values():
            if not resident.yielding or resident.state is not Residency.READY:
                continue
            if resident.laden and not resident.busy:
                continue  # it is as good as gone, as soon as its adapters are
            beneath = resident.base is not None and resident.base.yielding
            if resident.device not in making_room and not (beneath or self.asks.unloads_of(resident.key)):
                effects += self.stay(resident)
        return effects

    def stay(self, resident: Resident) -> list[Effect]:
        """It does not leave after all; whoever has asked for it since has it."""
        resident.yielding = False
        pin = self.held.pins.get(resident.unit)
        if pin is None or pin.device == resident.device:
            self.held.claims.pop(resident.unit, None)
        return [Ready(*resident.key), *self.asks.loaded(resident.unit)]

    def keep_pinned(self, resident: Resident) -> list[Effect]:
        """It was to leave, and is pinned now."""
        if not resident.yielding or resident.state not in (Residency.READY, Residency.LOADING):
            return []  # it comes back when it has left
        beneath = self.keep_pinned(resident.base) if resident.base is not None else []
        error = InvalidInput(f"{resident.unit} was pinned before it had left.")
        told = [*beneath, *self.asks.keep(resident.key, error)]
        if resident.state is Residency.READY:
            return [*told, *self.stay(resident)]
        resident.yielding = False
        return told

    def rests(self, resident: Resident) -> None:
        """What it ran or what waited for it has ended; perhaps both."""
        if not resident.busy and resident.unit not in self.held.wanted:
            resident.caught_up = True
        self.watch(resident)

    def watch(self, resident: Resident) -> None:
        """From now on it may be one that nobody uses."""
        self.wake_at = min(self.wake_at, resident.last_used + self._patience(resident))

    def expire(self, now: float) -> list[Effect]:
        """Units that nobody used for the idle time leave."""
        if now < self.wake_at:
            return []
        self.wake_at = math.inf
        effects: list[Effect] = []
        for resident in self.held.residents.values():
            if resident.busy or resident.unit in self.held.wanted or not eviction.may_leave(resident):
                continue
            if resident.last_used + self._patience(resident) <= now:
                effects += self.evict(resident, "idle", now)
            else:
                self.watch(resident)
        return effects

    def _patience(self, resident: Resident) -> float:
        """Seconds that it may be idle."""
        own = self.held.facts(resident.unit).idle_unload
        asked = self.rules.idle_unload if own is None else own
        return math.inf if asked is None else asked
