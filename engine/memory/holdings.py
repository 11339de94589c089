"""What is held where: residents, footprints, pins and ledgers, and the arithmetic over them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from engine.memory.footprint import Footprint
from engine.memory.host_tier import HostTier
from engine.memory.ledger import Ledger, Line
from engine.memory.residency import Residency, Resident
from engine.memory.rules import BUSY_SECONDS, FLOOR_SHARE, KV_FLOOR_TOKENS
from engine.memory.seats import Claim, Seat, Want
from engine.memory.workspace import Takes, WorkspaceCurve
from engine.units import UnitFacts

UNKNOWN = Footprint(0)
"""Of a unit that was not inspected yet."""


@dataclass(slots=True)
class Holdings:
    """The state of the memory manager. Only `Custody` and its parts change it."""

    facts: Callable[[str], UnitFacts]
    ledgers: Mapping[str, Ledger]
    kinds: Mapping[str, str]
    """Kind of each device, by its name; the order is the order of preference within a kind."""
    slots: Mapping[str, int] = field(default_factory=dict)
    """Batches that each device runs at once, where that is known."""
    host: HostTier = field(default_factory=lambda: HostTier(0))
    tiered: Collection[str] = ()
    """Devices whose weights can go to host memory and come back."""
    residents: dict[tuple[str, str], Resident] = field(default_factory=dict)
    footprints: dict[str, Footprint] = field(default_factory=dict)
    workspaces: dict[tuple[str, str], WorkspaceCurve] = field(default_factory=dict)
    pins: dict[str, Seat] = field(default_factory=dict)
    """The place of each pinned unit, whether it is there yet or not."""
    claims: dict[str, Claim] = field(default_factory=dict)
    wanted: dict[str, Want] = field(default_factory=dict)
    """Units that have work, and how urgent that was when it was last told."""
    lost: dict[str, str] = field(default_factory=dict)
    """Devices that are gone, and why."""
    busiest: dict[str, tuple[int, float]] = field(default_factory=dict)
    """The most that batches held at once on each device in the recent past, and when."""
    allocated: dict[str, int] = field(default_factory=dict)
    """What our own allocator was last seen to hold on each device."""

    _of: dict[str, list[Resident]] = field(default_factory=dict)
    """The residents of each unit, in the order in which they came to be known."""
    _floors: dict[tuple[str, str], tuple[UnitFacts, Footprint, int, int]] = field(default_factory=dict)
    """Each floor beside what it was worked out from: it is asked far more often than that changes."""

    def knows(self, unit: str) -> bool:
        """Whether the catalogue makes such a unit on this machine."""
        try:
            self.facts(unit)
        except KeyError:
            return False
        return True

    def adapts(self, unit: str) -> str | None:
        """The unit that an adapter is laid over; None of what is none."""
        return self.facts(unit).adapts

    def measured(self, unit: str) -> bool:
        """Whether it is known what it takes, and what is beneath it."""
        of = self.adapts(unit) if unit in self.footprints else None
        return unit in self.footprints and (of is None or of in self.footprints)

    def adapters_of(self, unit: str, among: Iterable[str]) -> list[str]:
        return [each for each in among if self.adapts(each) == unit]

    def seat(self, unit: str) -> Seat | None:
        """Its place where it is pinned, or an adapter of it is: that one's."""
        if not self.pins:
            return None
        own = self.pins.get(unit)
        return own or next((self.pins[each] for each in self.adapters_of(unit, self.pins)), None)

    def takes(self, unit: str, device: str) -> Takes:
        curve = self.workspaces.get((unit, device))
        if curve is None:
            curve = self.workspaces[unit, device] = WorkspaceCurve()
        return Takes(self.footprints.get(unit, UNKNOWN), curve)

    def floor(self, unit: str, device: str) -> int:
        """Bytes beside the weights without which the unit is of no use there."""
        facts, takes = self.facts(unit), self.takes(unit, device)
        known = self._floors.get((unit, device))
        if known and known[0] is facts and known[1] is takes.declared and known[2] == takes.curve.revision:
            return known[3]
        # Nor are there larger batches than those that are left since one ran out of memory.
        cost = min(min(facts.max_batch_cost, 1 << 16) // FLOOR_SHARE, takes.largest_batch)
        kv = KV_FLOOR_TOKENS * takes.kv_bytes_per_token if facts.generative else 0
        size = takes.workspace(max(1, cost)) + kv
        self._floors[unit, device] = (facts, takes.declared, takes.curve.revision, size)
        return size

    def seats(self, device: str, extra: Mapping[str, int] | None = None) -> dict[str, int]:
        """Units that have a place on `device`, and for how many of their batches at once; with those of
        `extra` in place of or beside them. Where an adapter has one its base has, and runs the batches."""
        found: dict[str, int] = {}
        for unit, pin in self.pins.items():
            for seat in (pin, pin.former):
                if seat is not None and seat.device == device:
                    found[unit] = max(found.get(unit, 0), seat.slots)
        found |= extra or {}
        for unit, slots in tuple(found.items()):
            if (of := self.adapts(unit)) is not None:
                found[unit], found[of] = 1, max(slots, found.get(of, 1))
        return found

    def set_aside(self, device: str, apart: str = "") -> dict[str, int]:
        """Bytes that are kept free for the batches of pins with more than one slot, by unit."""
        if not any(pin.slots > 1 or pin.former for pin in self.pins.values()):
            return {}
        return {
            unit: slots * self.floor(unit, device)
            for unit, slots in self.seats(device).items()
            if slots > 1 and unit != apart
        }

    def reserved(self, device: str, apart: str = "") -> int:
        """Free bytes that only pins may take, `apart` from those of one."""
        if not self.pins:
            return 0
        rest = 0
        for unit, size in self.set_aside(device, apart).items():
            resident = self.residents.get((unit, device))
            rest += max(0, size - resident.workspace_bytes) if resident is not None else size
        return rest

    def shortfall(
        self,
        unit: str,
        device: str,
        leaving: Sequence[Resident] = (),
        before: Sequence[str] = (),
        at_least: int = 0,
    ) -> int:
        """Bytes that must come free before `unit` can load beside what is there and what loads `before` it.

        The weights of `leaving` are among them still, but no room is kept for their batches; nor for those
        of a unit without work, which has others evicted when it comes to have some. For all batches
        together there is `at_least` so much.
        """
        ledger, loading = self.ledgers[device], (unit, *before)
        there = [r for r in self.on(device) if r.resident]
        staying = [r for r in there if not (r.yielding or r in leaving)]
        at_work = [r for r in staying if r.kept or r.busy or r.owed_bytes or r.unit in self.wanted]
        floors = {u: self.floor(u, device) for u in loading}
        floors |= {r.unit: max(r.owed_bytes, self.floor(r.unit, device)) for r in at_work}
        in_use = {r.unit: r.workspace_bytes for r in there}
        aside = self.set_aside(device)
        apart = sum(max(size, in_use.pop(u, 0), floors.pop(u, 0)) for u, size in aside.items())
        room = max(at_least, apart + max(sum(in_use.values()), max(floors.values(), default=0)))
        weights = sum(self.footprints[u].weights_bytes for u in loading)
        workspace = ledger.on_line(Line.WORKSPACE)
        return ledger.used_bytes - workspace + weights + room - ledger.budget_bytes

    def note_work(self, device: str, now: float) -> None:
        """Batches hold more there than before."""
        in_use = self.ledgers[device].on_line(Line.WORKSPACE)
        most, at = self.busiest.get(device, (0, now))
        if in_use >= most or now - at > BUSY_SECONDS:
            self.busiest[device] = (in_use, now)

    def crowded(self, device: str) -> bool:
        """Whether others on the card have taken of what the pins leave no room for."""
        ledger = self.ledgers[device]
        foreign = ledger.held(Line.FOREIGN, "")
        return foreign > 0 and foreign + self.pinned_bytes(device) > ledger.budget_bytes

    def pinned_bytes(self, device: str, extra: Mapping[str, int] | None = None) -> int:
        """What the pins of `device` take at least, with those of `extra` (unit: slots) in place of or beside
        them: weights, a batch of the largest, and all batches of those with several slots."""
        seats = self.seats(device, extra)
        alone = [self.floor(u, device) for u, slots in seats.items() if slots == 1]
        several = [slots * self.floor(u, device) for u, slots in seats.items() if slots > 1]
        weights = sum(self.footprints[u].weights_bytes for u in seats)
        return self.ledgers[device].held(Line.CONTEXT, "") + weights + sum(several) + max(alone, default=0)

    def unattributed(self, device: str) -> int:
        """What our allocator holds there beyond what the ledger knows of; below zero when it is less."""
        lines = self.ledgers[device].lines()
        del lines[Line.FOREIGN]
        return self.allocated.get(device, 0) - sum(lines.values()) if device in self.allocated else 0

    def devices(self, unit: str) -> list[str]:
        """Devices that the unit may use, the preferred first."""
        kinds = self.facts(unit).device_kinds
        there = {device: kind for device, kind in self.kinds.items() if device not in self.lost}
        return [device for kind in kinds for device, k in there.items() if k == kind]

    def entry(self, unit: str, device: str) -> Resident:
        footprint = self.footprints.get(unit, UNKNOWN)
        resident = self.residents.get((unit, device))
        if resident is None:
            resident = self.residents[unit, device] = Resident(unit, device, footprint)
            self._of.setdefault(unit, []).append(resident)
            if (of := self.adapts(unit)) is not None:
                resident.base = self.entry(of, device)
                resident.base.adapters.append(resident)
        resident.footprint = footprint
        return resident

    def on(self, device: str) -> list[Resident]:
        return [r for r in self.residents.values() if r.device == device]

    def of(self, unit: str) -> Sequence[Resident]:
        """Wherever it is or was."""
        return self._of.get(unit, ())

    def copies(self, unit: str) -> list[Resident]:
        """Wherever it holds its weights' bytes."""
        return [r for r in self.of(unit) if r.resident]

    def ready(self, unit: str) -> list[Resident]:
        """Where leases for it can be had."""
        return [r for r in self.of(unit) if r.state is Residency.READY and not r.yielding]

    def coming(self, unit: str) -> list[Resident]:
        return [r for r in self.of(unit) if r.state is Residency.LOADING and not r.yielding]

    def spare(self) -> set[tuple[str, str]]:
        """Copies that their unit would be ready without: all but the pinned, else the last one used."""
        ready: dict[str, list[Resident]] = {}
        for resident in self.residents.values():
            if resident.state is Residency.READY and not resident.yielding:
                ready.setdefault(resident.unit, []).append(resident)
        spares: set[tuple[str, str]] = set()
        for copies in ready.values():
            copies.sort(key=lambda r: (r.pinned, r.last_used))
            spares |= {r.key for r in copies[:-1] if not r.pinned}
        return spares

    def others_active(self, resident: Resident) -> bool:
        """Whether bytes of this device will come free without anybody being evicted."""
        moving = (Residency.LOADING, Residency.LEAVING)
        return any(
            r.leases or r.state in moving or (r is not resident and r.kv_bytes)
            for r in self.on(resident.device)
        )
