"""What is held where: residents, footprints, pins and ledgers, and the arithmetic over them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from engine.errors import NoRoom
from engine.memory.footprint import Footprint
from engine.memory.ledger import Ledger, Line
from engine.memory.residency import Residency, Resident
from engine.memory.rules import FLOOR_SHARE, KV_FLOOR_TOKENS
from engine.units import UnitFacts


@dataclass(slots=True)
class Holdings:
    """The state of the memory manager. Only `Custody` changes it."""

    facts: Callable[[str], UnitFacts]
    ledgers: Mapping[str, Ledger]
    kinds: Mapping[str, str]
    """Kind of each device, by its name; the order is the order of preference within a kind."""
    residents: dict[tuple[str, str], Resident] = field(default_factory=dict)
    footprints: dict[str, Footprint] = field(default_factory=dict)
    pins: dict[str, str] = field(default_factory=dict)
    """The device that each pinned unit has its place on, whether it is there yet or not."""

    def floor(self, unit: str, footprint: Footprint) -> int:
        """Bytes beside the weights without which the unit is of no use."""
        facts = self.facts(unit)
        cost = min(facts.max_batch_cost, 1 << 16) // FLOOR_SHARE
        kv = KV_FLOOR_TOKENS * footprint.kv_bytes_per_token if facts.generative else 0
        return footprint.workspace(max(1, cost)) + kv

    def shortfall(
        self,
        unit: str,
        device: str,
        wanted: Collection[str],
        leaving: Sequence[Resident] = (),
        before: Sequence[str] = (),
    ) -> int:
        """Bytes that must come free before `unit` can load beside what is there and what loads `before` it.

        The weights of `leaving` are among them still, but no room is kept for their batches; nor for those
        of a unit without work, which has others evicted when it comes to have some.
        """
        ledger, loading = self.ledgers[device], {u: self.footprints[u] for u in (unit, *before)}
        lines = ledger.lines()
        there = [r for r in self.residents.values() if r.device == device and r.resident]
        staying = [r for r in there if not (r.yielding or r in leaving)]
        at_work = [r for r in staying if r.pinned or r.busy or r.owed_bytes or r.unit in wanted]
        floors = [max(r.owed_bytes, self.floor(r.unit, r.footprint)) for r in at_work]
        room = max([lines[Line.WORKSPACE], *floors, *(self.floor(u, f) for u, f in loading.items())])
        weights = sum(footprint.weights_bytes for footprint in loading.values())
        return ledger.used_bytes - lines[Line.WORKSPACE] + weights + room - ledger.budget_bytes

    def home(self, unit: str) -> str | None:
        """Where it is pinned; else the first device where it fits beside what is pinned there, one that has
        it before others; None when there is none."""
        if unit in self.pins:
            return self.pins[unit]
        footprint = self.footprints[unit]
        for device in sorted(self.devices(unit), key=lambda device: not self._has(unit, device)):
            pinned = [p for p, place in self.pins.items() if place == device]
            weights = sum(self.footprints[p].weights_bytes for p in pinned) + footprint.weights_bytes
            room = max(self.floor(u, self.footprints[u]) for u in [unit, *pinned])
            if weights + room <= self.ledgers[device].budget_bytes:
                return device
        return None

    def _has(self, unit: str, device: str) -> bool:
        resident = self.residents.get((unit, device))
        return resident is not None and resident.resident

    def no_room(self, unit: str) -> NoRoom:
        footprint = self.footprints[unit]
        devices = self.devices(unit)
        if not devices:
            kinds = ", ".join(self.facts(unit).device_kinds)
            return NoRoom(f"{unit} runs on {kinds}; this server has {', '.join(self.kinds.values())}.")
        device, floor = devices[0], self.floor(unit, footprint)
        budget, needed = self.ledgers[device].budget_bytes, footprint.weights_bytes + floor
        text = (
            f"{unit} takes {_mib(footprint.weights_bytes)} of weights and at least {_mib(floor)} to run in; "
            f"{device} has {_mib(budget)} for models"
        )
        if not self.fits_alone(unit):
            memory = _mib(int(needed / (1 - self.ledgers[device].headroom)) + 2**20)
            return NoRoom(f"{text}. Give the server at least {memory} of memory.")
        pins = [f"{p} {_mib(self.footprints[p].weights_bytes)}" for p in sorted(self.pins)]
        held = f"{text}, of which pins hold {', '.join(pins)}. Unpin one, or give the server more memory."
        return NoRoom(held, pins=sorted(self.pins))

    def fits_alone(self, unit: str) -> bool:
        """Whether some device could hold it if nothing were pinned."""
        footprint = self.footprints[unit]
        needed = footprint.weights_bytes + self.floor(unit, footprint)
        return any(needed <= self.ledgers[device].budget_bytes for device in self.devices(unit))

    def devices(self, unit: str) -> list[str]:
        """Devices that the unit may use, the preferred first."""
        kinds = self.facts(unit).device_kinds
        return [device for kind in kinds for device, k in self.kinds.items() if k == kind]

    def entry(self, unit: str, device: str, footprint: Footprint) -> Resident:
        return self.residents.setdefault((unit, device), Resident(unit, device, footprint))

    def ready(self, unit: str) -> Resident | None:
        """Where leases for it can be had: when it is pinned, only where it is pinned."""
        mine = [r for r in self.residents.values() if r.unit == unit and not r.yielding]
        there = [r for r in mine if r.device == self.pins.get(unit, r.device)]
        return next((r for r in there if r.state is Residency.READY), None)

    def others_active(self, resident: Resident) -> bool:
        """Whether bytes of this device will come free without anybody being evicted."""
        here = [r for r in self.residents.values() if r.device == resident.device]
        moving = (Residency.LOADING, Residency.LEAVING)
        return any(r.leases or r.state in moving or (r is not resident and r.kv_bytes) for r in here)


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.0f} MiB"
