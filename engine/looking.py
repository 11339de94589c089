"""A copy of what the actors know, for whoever looks. Reads only, on the event loop, between two messages."""

from __future__ import annotations

from collections.abc import Mapping

import anyio

from engine.actors.batcher import Batcher
from engine.actors.memory_manager import MemoryManager
from engine.actors.router import Router
from engine.actors.telemetry import Telemetry
from engine.catalog import Catalog, ModelSpec
from engine.devices.device import Device
from engine.memory.residency import Residency, Resident
from engine.view import DeviceView, EngineView, ModelView, ResidencyView

STATES = {
    Residency.READY: "loaded",
    Residency.LOADING: "loading",
    Residency.LEAVING: "unloading",
    Residency.FAILED: "failed",
    Residency.ABSENT: "available",
}


class Looking:
    def __init__(
        self,
        *,
        catalog: Catalog,
        devices: Mapping[str, Device],
        router: Router,
        batcher: Batcher,
        memory: MemoryManager,
        telemetry: Telemetry,
        held_limit: int,
    ) -> None:
        self._catalog = catalog
        self._devices = devices
        self._router = router
        self._dispatch = batcher.dispatch
        self._custody = memory.custody
        self._telemetry = telemetry
        self._held_limit = held_limit

    def view(self) -> EngineView:
        return EngineView(
            models=tuple(self._model(spec) for spec in self._catalog),
            devices=tuple(self._device(device) for device in self._devices.values()),
            held_bytes=self._router.held_bytes,
            held_limit=self._held_limit,
            totals=dict(self._telemetry.totals),
        )

    def _model(self, spec: ModelSpec) -> ModelView:
        units = dict.fromkeys(spec.unit(profile) for profile in (None, *spec.profiles))
        now, dispatch = anyio.current_time(), self._dispatch
        lanes = [lane for unit in units if (lane := dispatch.lanes.get(unit))]
        there = [r for r in self._custody.held.residents.values() if r.unit in units]
        states = [r.state for r in there if r.state is not Residency.ABSENT]
        # Of several residencies the most usable one is the model's.
        state = next((state for state in STATES if state in states), Residency.ABSENT)
        failed = next((r for r in there if r.failure and r.state is Residency.FAILED), None)
        changes = self._telemetry.residency
        return ModelView(
            id=spec.id,
            state=STATES[state],
            residencies=tuple(self._residency(r) for r in there if r.state is not Residency.ABSENT),
            waiting=sum(map(len, lanes)),
            waiting_cost=sum(lane.cost for lane in lanes),
            oldest=max((now - lane.oldest_arrival() for lane in lanes if len(lane)), default=0.0),
            in_flight=sum(len(b.jobs) for b in dispatch.running.values() if b.run.lease.unit in units),
            loads=sum(changes[unit, "loaded"] for unit in units),
            evictions=sum(changes[unit, "evicted"] for unit in units),
            last_error=_error(failed) if failed else None,
        )

    def _residency(self, resident: Resident) -> ResidencyView:
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
            why=self._why(resident),
            floor_bytes=self._custody.held.floor(resident.unit, resident.footprint),
        )

    def _why(self, resident: Resident) -> str:
        if resident.state is Residency.FAILED and resident.failure is not None:
            return resident.failure.message
        if resident.pinned:
            return "pinned"
        if resident.yielding:
            return "makes room as soon as its work ends"
        if resident.busy or resident.unit in self._custody.wanted:
            return "has work"
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
