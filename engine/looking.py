"""A copy of what the actors know, for whoever looks. Reads only, on the event loop, between two messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import anyio

from engine.actors.batcher import Batcher
from engine.actors.memory_manager import MemoryManager
from engine.actors.router import Router
from engine.actors.telemetry import Telemetry
from engine.catalog import ModelSpec
from engine.devices.device import Device
from engine.memory.placement import alarm
from engine.memory.residency import Residency, Resident
from engine.orders import CATALOGUE, EVERY_MODEL, RECORDINGS
from engine.requests import ServiceClass
from engine.scheduling.lanes import Lane
from engine.units import Units, parted
from engine.view import DeviceView, EngineView, ModelView, ResidencyView

STATES = {
    Residency.READY: "loaded",
    Residency.LOADING: "loading",
    Residency.LEAVING: "unloading",
    Residency.FAILED: "failed",
    Residency.ABSENT: "available",
}


@dataclass(frozen=True, slots=True)
class _Index:
    """Who belongs to whom, made once a look: there may be hundreds of models and of units."""

    spare: Collection[tuple[str, str]]
    units: dict[str, list[str]] = field(default_factory=dict)  # by model
    ever: dict[str, list[str]] = field(default_factory=dict)  # those that have left too
    residents: dict[str, list[Resident]] = field(default_factory=dict)  # by unit
    running: Counter[str] = field(default_factory=Counter)  # jobs by unit


NOBODY = {each.name.lower(): 0 for each in ServiceClass}
"""Jobs that wait, of the many models that nobody asks for."""


class Looking:
    def __init__(
        self,
        *,
        units: Units,
        devices: Mapping[str, Device],
        router: Router,
        batcher: Batcher,
        memory: MemoryManager,
        telemetry: Telemetry,
        held_limit: int,
    ) -> None:
        self._units = units
        self._devices = devices
        self._router = router
        self._dispatch = batcher.dispatch
        self._custody = memory.custody
        self._telemetry = telemetry
        self._held_limit = held_limit

    def view(self) -> EngineView:
        index = self._index()
        return EngineView(
            models=tuple(self._model(spec, index) for spec in self._units.catalog),
            devices=tuple(self._device(device) for device in self._devices.values()),
            held_bytes=self._router.held_bytes,
            held_limit=self._held_limit,
            totals=dict(self._telemetry.totals),
            host={kept.unit: kept.nbytes for kept in self._custody.held.host},
            host_limit=self._custody.held.host.budget_bytes,
        )

    def resident(self, unit: str) -> bool:
        """Whether it is somewhere, or will be, and is not about to leave."""
        return any(not r.yielding for r in self._custody.held.copies(unit))

    def paused(self, model: str) -> bool:
        """Whether it takes no new requests."""
        return bool(self._router.paused & {model, EVERY_MODEL})

    def left(self, units: Collection[str]) -> dict[str, int]:
        """What these units still have to do: requests that are prepared, jobs that wait and that run."""
        dispatch = self._dispatch
        batches = [batch for batch in dispatch.running.values() if batch.run.lease.unit in units]
        sequences = sum(len(dispatch.sequences.get(unit, ())) for unit in units)
        return {
            "preparing": self._router.preparing(units),
            "waiting": sum(len(dispatch.lanes.get(unit, ())) for unit in units),
            "running": sequences or sum(len(batch.jobs) for batch in batches),
        }

    def briefly(self, model: str) -> str:
        """How a model is, or the catalogue, in a few words for the audit."""
        if model == CATALOGUE:
            return f"{len(self._units.catalog)} models"
        if model == RECORDINGS:
            return ""
        if model == EVERY_MODEL:
            return "paused" if model in self._router.paused else "open"
        units = [*self._units.versions(model)]
        paused = ["paused"] if model in self._router.paused else []
        return ", ".join([*self._presence(units), *paused])

    def briefly_of_adapter(self, unit: str) -> str | None:
        """The same of an adapter; None where this is none."""
        if not parted(unit)[1] or not self._units.serves(unit):
            return None
        return ", ".join(self._presence([self._units.serving(unit)]))

    def _presence(self, units: Collection[str]) -> list[str]:
        there = [r for r in self._custody.held.residents.values() if r.unit in units]
        states = [STATES[r.state] for r in there if r.state is not Residency.ABSENT]
        pinned = ["pinned"] if any(r.pinned for r in there) else []
        return [*(dict.fromkeys(states) or ["available"]), *pinned]

    def _index(self) -> _Index:
        index = _Index(spare=self._custody.held.spare())
        for unit, model, present in self._units.all():
            index.ever.setdefault(model, []).append(unit)
            if present:
                index.units.setdefault(model, []).append(unit)
        for resident in self._custody.held.residents.values():
            index.residents.setdefault(resident.unit, []).append(resident)
        for batch in self._dispatch.running.values():
            index.running[batch.run.lease.unit] += len(batch.jobs)
        return index

    def _model(self, spec: ModelSpec, index: _Index) -> ModelView:
        units = index.units.get(spec.id, ())
        now, dispatch = anyio.current_time(), self._dispatch
        lanes = [lane for unit in units if (lane := dispatch.lanes.get(unit))]
        there = [r for unit in units for r in index.residents.get(unit, ())]
        own = [r for r in there if r.base is None]
        states = [r.state for r in own if r.state is not Residency.ABSENT]
        # Of several residencies the most usable one is the model's.
        state = next((state for state in STATES if state in states), Residency.ABSENT)
        failed = next((r for r in own if r.failure and r.state is Residency.FAILED), None)
        changes = self._telemetry.residency
        return ModelView(
            id=spec.id,
            state=STATES[state],
            residencies=tuple(self._residency(r, index) for r in there if r.state is not Residency.ABSENT),
            waiting=sum(map(len, lanes)),
            waiting_cost=sum(lane.cost for lane in lanes),
            waiting_by_class=_by_class(lanes) if lanes else NOBODY,
            oldest=max((now - lane.oldest_arrival() for lane in lanes if len(lane)), default=0.0),
            in_flight=sum(index.running[unit] for unit in units),
            loads=sum(changes[unit, "loaded"] for unit in index.ever.get(spec.id, ())),
            evictions=sum(changes[unit, "evicted"] for unit in index.ever.get(spec.id, ())),
            last_error=_error(failed) if failed else None,
            paused=not self._router.paused.isdisjoint((spec.id, EVERY_MODEL)),
        )

    def _residency(self, resident: Resident, index: _Index) -> ResidencyView:
        now = anyio.current_time()
        return ResidencyView(
            unit=resident.unit,
            device=resident.device,
            state=resident.state,
            weights_bytes=resident.footprint.weights_bytes if resident.resident else 0,
            pinned=resident.pinned,
            leases=resident.leases,
            since=now - resident.since,
            idle=0.0 if resident.busy else now - resident.last_used,
            why=self._why(resident, index),
            floor_bytes=self._custody.held.floor(resident.unit, resident.device),
            thrashing=self._custody.thrashing(resident.unit, resident.device, now),
        )

    def _why(self, resident: Resident, index: _Index) -> str:
        if resident.state is Residency.FAILED and resident.failure is not None:
            return resident.failure.message
        if resident.pinned:
            slots = self._custody.held.pins[resident.unit].slots
            return "pinned" if slots == 1 else f"pinned, with room for {slots} batches at once"
        if resident.kept:
            return "an adapter of it is pinned"
        if resident.yielding:
            return "makes room as soon as its work ends"
        if resident.busy or resident.unit in self._custody.held.wanted:
            return "has work"
        if resident.key in index.spare:
            return "a second copy; leaves first when room is needed"
        if resident.why and not resident.demand:
            return f"loaded ahead: {resident.why}"
        return "used before; leaves when room is needed"

    def _device(self, device: Device) -> DeviceView:
        ledger = self._custody.held.ledgers[device.name]
        running = [b for b in self._dispatch.running.values() if b.run.lease.device == device.name]
        return DeviceView(
            name=device.name,
            kind=device.kind,
            total_bytes=ledger.total_bytes,
            budget_bytes=ledger.budget_bytes,
            lines={str(line): size for line, size in ledger.lines().items()},
            slots=device.slots,
            busy_slots=len(running),
            busy_seconds=self._telemetry.device_seconds[device.name],
            unattributed_bytes=self._custody.held.unattributed(device.name),
            alarm=alarm(self._custody.held, device.name),
            utilisation=device.last_seen.utilisation,
            temperature=device.last_seen.temperature,
        )


def _error(resident: Resident) -> dict[str, object]:
    failure = resident.failure
    assert failure is not None
    return {
        "code": failure.error().code,
        "message": failure.message,
        "attempts": resident.attempts,
        "permanent": bool(failure.details.get("permanent", False)),
    }


def _by_class(lanes: Collection[Lane]) -> dict[str, int]:
    return {each.name.lower(): sum(lane.count(each) for lane in lanes) for each in ServiceClass}
