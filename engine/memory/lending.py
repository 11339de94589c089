"""Memory for batches: who is granted a lease, who is denied one, and who is told to ask again. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection
from dataclasses import dataclass, field

from msgspec.structs import replace

from engine.conversation import Denied, Granted, Lease, Need, Ready, Release, TooLarge
from engine.memory import eviction
from engine.memory.departures import Departures
from engine.memory.effects import Effect
from engine.memory.holdings import Holdings
from engine.memory.leasing import Sized, largest, size
from engine.memory.ledger import Line
from engine.memory.residency import Resident


@dataclass(slots=True)
class Lending:
    held: Holdings
    departures: Departures
    _starved: dict[tuple[str, str], float] = field(default_factory=dict)  # when to look again
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def wake_at(self) -> float:
        """When one that was denied for want of bytes may ask again, if none come free before."""
        return min(self._starved.values()) if self._starved else math.inf

    @property
    def starved(self) -> bool:
        """Whether any was denied for want of bytes."""
        return bool(self._starved)

    def lend(self, need: Need, resident: Resident, now: float) -> list[Effect]:
        """Grant a lease if memory for the batch is free."""
        free, spoken_for = self.held.ledgers[need.device].free_bytes, self._spoken_for(need.device)
        if resident.yielding:  # its sequences go on to their end, and nobody joins them
            need, spoken_for = replace(need, kv_min=need.kv_floor, kv_want=need.kv_floor), 0
        if not need.goes_on:  # what runs is not kept from its end by room that is reserved
            free -= self.held.reserved(need.device, need.unit)
        takes = self.held.takes(need.unit, need.device)
        sized = size(need, takes, free - spoken_for)
        if sized is None and not self.held.others_active(resident):
            sized = size(need, takes, free)
        if sized is None:
            return self._make_room(need, resident, now)
        granted = self._grant(need, sized, resident, now)
        if sized.kv_tokens < need.kv_want:  # sequences wait beside weights that nobody wants
            return [granted, *self.departures.evict_idle(resident, f"for sequences of {need.unit}", now)]
        return [granted]

    def _grant(self, need: Need, sized: Sized, resident: Resident, now: float) -> Granted:
        kv_bytes = sized.kv_tokens * resident.footprint.kv_bytes_per_token
        number, ledger = next(self._numbers), self.held.ledgers[need.device]
        # One that is to leave takes nobody more, but its sequences go on.
        adapters = [a for a in resident.adapters if a.unit in need.adapters and (a.lends or a.in_use)]
        names = tuple([adapter.unit for adapter in adapters])
        lease = Lease(number, need.unit, need.device, need.slot, sized.cost, kv_bytes, names)
        held = ledger.hold(Line.WORKSPACE, str(lease.id), sized.workspace_bytes)
        held = held and ledger.hold(Line.KV, need.unit, kv_bytes)
        assert held, "size() took more than is free"
        resident.kv_tokens = sized.kv_tokens
        for each in (resident, *adapters):
            each.leases += 1
            eviction.used(each, now)
            each.used_for[need.urgency] = now
        resident.workspace_bytes += sized.workspace_bytes
        resident.owed_bytes = 0
        self.held.note_work(need.device, now)
        return Granted(lease, sized.kv_tokens)

    def end(self, release: Release, resident: Resident, now: float) -> list[Effect]:
        """A lease is over: its workspace is free, and what the batch took is learned from."""
        lease, ledger = release.lease, self.held.ledgers[release.lease.device]
        resident.workspace_bytes -= ledger.held(Line.WORKSPACE, str(lease.id))
        ledger.hold(Line.WORKSPACE, str(lease.id), 0)
        resident.kv_tokens = release.kv_tokens
        ledger.hold(Line.KV, lease.unit, resident.kv_bytes)
        for each in (resident, *[a for a in resident.adapters if a.unit in lease.adapters]):
            each.leases -= 1
            eviction.used(each, now, uses=0)
        for adapter in resident.adapters:
            adapter.in_use = adapter.unit in release.adapters
        self._learn(release)
        if not release.out_of_memory:
            return []
        # Reality disagrees with the ledger: there is less room than it thinks.
        return self.departures.evict_idle(resident, f"since {lease.unit} ran out of memory", now)

    def _learn(self, release: Release) -> None:
        unit = release.lease.unit
        if release.out_of_memory:
            takes = self.held.takes(unit, release.lease.device)
            takes.curve.ran_out(release.cost, takes.declared)
        elif release.peak_bytes and release.cost and not self.held.facts(unit).generative:
            # A peak of one that generates has its sequences' tokens in it, which the ledger counts apart.
            self.held.takes(unit, release.lease.device).curve.observe(release.cost, release.peak_bytes)

    def _make_room(self, need: Need, resident: Resident, now: float) -> list[Effect]:
        """The batch does not fit now. Wait for others to finish, evict who is idle, or say never."""
        denied = Denied(need.slot, need.unit, need.device, "busy")
        takes, ledger = self.held.takes(need.unit, need.device), self.held.ledgers[need.device]
        least = takes.workspace(max(1, need.min_cost))
        least += (need.kv_min - need.kv_floor) * takes.kv_bytes_per_token
        if resident.yielding or self.held.others_active(resident):  # one that is to leave turns nobody out
            self._starve(resident, least, math.inf)
            return [denied]
        # What the batch itself is read with is no help by its going.
        others = [r for r in self.held.on(need.device) if r is not resident and r.unit not in need.needed]
        free = ledger.free_bytes - self.held.reserved(need.device, need.unit)
        leaving = eviction.for_batch(least - free, others, self.departures.standing(now))
        look_again = math.inf
        if isinstance(leaving, float):
            look_again, leaving = leaving, []
        if leaving is None:
            most = self._most(resident, need.needed)
            if least > most and not need.goes_on:
                resident.owed_bytes = 0
                return [TooLarge(need.slot, need.unit, need.device, *largest(takes, most))]
            leaving = []  # only what is foreign stands in the way, and may go as it came
        self._starve(resident, least, look_again)
        reason = f"for a batch of {need.unit}"
        return [denied, *[e for r in leaving for e in self.departures.evict(r, reason, now)]]

    def _most(self, resident: Resident, needed: Collection[str]) -> int:
        """Bytes that a batch of it could ever have, once all have left that may, but the adapters that it is
        read with."""
        ledger, device = self.held.ledgers[resident.device], resident.device
        others = [r for r in self.held.on(device) if r is not resident and (r.kept or r.unit in needed)]
        pinned = sum(r.footprint.weights_bytes for r in others)
        aside = sum(self.held.set_aside(device, resident.unit).values())
        own = resident.footprint.weights_bytes + resident.kv_bytes
        return ledger.budget_bytes - ledger.held(Line.CONTEXT, "") - pinned - aside - own

    def _starve(self, resident: Resident, least: int, look_again: float) -> None:
        self._starved[resident.key], resident.owed_bytes = look_again, least

    def hungry(self) -> set[str]:
        """Devices where a unit that stays was denied a batch for want of bytes."""
        return {device for unit, device in self._starved if not self.held.residents[unit, device].yielding}

    def feed(self, device: str) -> list[Effect]:
        """Bytes came free on `device`: those that were denied for want of them may ask again."""
        if not self._starved:
            return []
        return self._tell([key for key in self._starved if key[1] == device])

    def look_again(self, now: float) -> list[Effect]:
        """Those whose neighbours have had their turn may ask again, and they leave."""
        if not self._starved:
            return []
        return self._tell([key for key, when in self._starved.items() if when <= now])

    def forget(self, device: str) -> None:
        """Nobody waits for bytes of a device that is gone."""
        self._starved = {key: when for key, when in self._starved.items() if key[1] != device}

    def _tell(self, keys: list[tuple[str, str]]) -> list[Effect]:
        for key in keys:
            del self._starved[key]
        return [Ready(*key) for key in sorted(keys) if self.held.residents[key].lends]

    def _spoken_for(self, device: str) -> int:
        """Free bytes that a lease must not take: those for claims that room is being made for, beyond
        what comes free when those have left that leave for them."""
        if not self.held.claims:
            return 0
        claims = [c for c in self.held.claims.values() if c.device == device]
        coming = [r for r in self.held.on(device) if r.yielding] if claims else []
        wanted = sum(self.held.footprints[c.unit].weights_bytes for c in claims)
        return max(0, wanted - sum(r.held_bytes for r in coming))
