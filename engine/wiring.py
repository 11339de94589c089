"""All wiring: which actor knows which, and nothing else. Nothing runs yet; see `engine/running.py`."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from engine.actors.actor import Actor, Address
from engine.actors.batcher import Batcher
from engine.actors.memory_manager import MemoryManager
from engine.actors.messages import Event
from engine.actors.model_runner import ModelRunner
from engine.actors.router import Intake, Router
from engine.actors.telemetry import Telemetry
from engine.adapters.family import GenerativeModel, Model
from engine.adjustments import Adjustments
from engine.adopting.opened import Opened
from engine.boxes import Boxes
from engine.catalog import Catalog
from engine.changeover import Changeover
from engine.closely import Closely
from engine.config import Settings
from engine.devices.device import Device
from engine.engine import Engine
from engine.journal import Journal
from engine.keeping import access_of, adjustments_of, audit_of, batches_of
from engine.loading import Loading
from engine.logs import Narrator
from engine.looking import Looking
from engine.memory.custody import Custody
from engine.memory.holdings import Holdings
from engine.memory.host_tier import HostTier
from engine.memory.ledger import Ledger, Line
from engine.operators import Operators
from engine.parts import Parts, host_memory, memory_rules, scheduling_rules
from engine.payloads import Payloads
from engine.preparation import Preparation
from engine.presence import Presence
from engine.recordings import Recordings
from engine.scheduling.dispatch import Dispatch
from engine.scheduling.rules import SchedulingRules
from engine.sizes import Sizes
from engine.snapshot import Snapshotting
from engine.timekeeper import Timekeeper, zone_of
from engine.units import Units, on_devices
from engine.wishes import Pinned


@dataclass(frozen=True, slots=True)
class Wired:
    """What is to run, and what its keeper needs to know of it."""

    engine: Engine
    actors: tuple[Actor[Any], ...]
    runners: dict[str, Callable[[], ModelRunner]]
    dispatch: Dispatch
    custody: Custody
    models: dict[tuple[str, str], Model | GenerativeModel]
    loading: Loading
    units: Units
    operators: Operators
    timekeeper: Timekeeper


def slots_of(parts: Parts) -> dict[str, tuple[str, int]]:
    """Every slot by name, with its device and its number there."""
    return {f"{d.name}/{n}": (d.name, n) for d in parts.devices for n in range(d.slots)}


@dataclass(frozen=True, slots=True)
class _Common:
    """What several of those who are made here have in common."""

    settings: Settings
    parts: Parts
    boxes: Boxes
    units: Units
    rules: SchedulingRules
    observers: list[Address[Event]]
    adjustments: Adjustments
    payloads: Payloads = field(default_factory=Payloads)
    models: dict[tuple[str, str], Model | GenerativeModel] = field(default_factory=dict)

    @property
    def devices(self) -> dict[str, Device]:
        return {device.name: device for device in self.parts.devices}


def wire(settings: Settings, catalog: Catalog, parts: Parts, boxes: Boxes) -> Wired:
    entries = on_devices(catalog, {device.kind for device in parts.devices})
    adjustments = adjustments_of(entries, parts)
    units = Units(adjustments.over(entries), settings.max_batch_cost)
    access = access_of(settings, parts, boxes)
    journal = Journal()
    observers: list[Address[Event]] = [boxes.telemetry, access.usage, journal, Narrator()]
    if parts.traffic is not None:
        observers.append(boxes.recorder)
    common = _Common(settings, parts, boxes, units, scheduling_rules(settings), observers, adjustments)
    memory, batcher, router = _memory(common), _batcher(common), _router(common)
    telemetry = Telemetry(boxes.telemetry)
    looking = _looking(common, router, batcher, memory, telemetry)
    sizes = Sizes(units, memory.custody.held, memory.loading.inspect, parts.ready, parts.opening)
    operators = _operators(common, looking, sizes)
    engine = Engine(
        units=units,
        settings=settings,
        session_key=(settings.session_key or secrets.token_hex()).encode(),
        router=boxes.router,
        operators=operators,
        telemetry=boxes.telemetry,
        view=looking.view,
        metrics=partial(telemetry.exposition, looking.view),
        access=access,
        batches=batches_of(settings, parts, boxes),
        opened=Opened(settings, units, parts.opening, operators.add_entry),
        recordings=_recordings(common, memory, batcher, operators),
        sizes=sizes,
        closely=Closely(
            units=units,
            dispatch=batcher.dispatch,
            custody=memory.custody,
            journal=journal,
            devices=parts.devices,
        ),
    )
    return Wired(
        engine=engine,
        actors=(telemetry, memory, batcher, router),
        runners=_runners(common),
        dispatch=batcher.dispatch,
        custody=memory.custody,
        models=common.models,
        loading=memory.loading,
        units=units,
        operators=operators,
        timekeeper=_timekeeper(common, operators, looking),
    )


def _looking(
    common: _Common, router: Router, batcher: Batcher, memory: MemoryManager, telemetry: Telemetry
) -> Looking:
    return Looking(
        units=common.units,
        devices=common.devices,
        router=router,
        batcher=batcher,
        memory=memory,
        telemetry=telemetry,
        held_limit=common.settings.max_held_bytes,
    )


def _recordings(common: _Common, memory: MemoryManager, batcher: Batcher, operators: Operators) -> Recordings:
    settings, parts = common.settings, common.parts
    return Recordings(
        common.boxes.recorder if parts.traffic is not None else None,
        operators.audit,
        Snapshotting(settings, common.units, memory.custody, batcher.dispatch, parts.devices, operators.pins),
    )


def _memory(common: _Common) -> MemoryManager:
    parts, units = common.parts, common.units
    loading = Loading(
        units=units,
        devices=common.devices,
        models=common.models,
        locate=parts.locate,
        family=parts.family,
        opening=parts.opening,
    )
    return MemoryManager(
        common.boxes.memory,
        custody=_custody(common.settings, units, parts),
        loading=loading,
        batcher=common.boxes.batcher,
        observers=common.observers,
    )


def _batcher(common: _Common) -> Batcher:
    boxes, slots = common.boxes, slots_of(common.parts)
    devices = {slot: device for slot, (device, _) in slots.items()}
    kinds = {device.name: device.kind for device in common.parts.devices}
    return Batcher(
        boxes.batcher,
        dispatch=Dispatch(common.units.facts, common.rules, devices, kinds),
        max_hold=common.settings.max_hold,
        payloads=common.payloads,
        memory=boxes.memory,
        runners=boxes.runners,
        router=boxes.router,
        observers=common.observers,
    )


def _router(common: _Common) -> Router:
    settings, parts = common.settings, common.parts
    return Router(
        common.boxes.router,
        units=common.units,
        rules=common.rules,
        intake=Intake(
            settings.max_held_bytes,
            settings.preparation_backlog,
            settings.max_hold,
            settings.preparation_threads,
        ),
        preparation=Preparation(parts.locate, parts.family, parts.opening, parts.preparing),
        payloads=common.payloads,
        batcher=common.boxes.batcher,
        memory=common.boxes.memory,
        observers=common.observers,
    )


def _runners(common: _Common) -> dict[str, Callable[[], ModelRunner]]:
    return {
        slot: partial(
            ModelRunner,
            common.boxes.runners[slot],
            name=slot,
            slot=number,
            device=common.devices[device],
            models=common.models,
            payloads=common.payloads,
            batcher=common.boxes.batcher,
        )
        for slot, (device, number) in slots_of(common.parts).items()
    }


def _operators(common: _Common, looking: Looking, sizes: Sizes) -> Operators:
    settings, parts, boxes, units = common.settings, common.parts, common.boxes, common.units
    pins: dict[str, Pinned] = {}
    changeover = Changeover(
        units=units,
        router=boxes.router,
        batcher=boxes.batcher,
        memory=boxes.memory,
        resident=looking.resident,
        pins=pins,
        drain_limit=settings.drain_limit,
    )
    return Operators(
        units=units,
        kinds={device.kind for device in parts.devices},
        audit=audit_of(parts, boxes, partial(_briefly, common.adjustments, looking)),
        changeover=changeover,
        presence=Presence(units=units, changeover=changeover, memory=boxes.memory, pins=pins),
        router=boxes.router,
        opening=parts.opening,
        left=looking.left,
        displaced=sizes.displaced,
        paused=looking.paused,
        drain_limit=settings.drain_limit,
        adjustments=common.adjustments,
        own=settings.state_dir / "catalog",
    )


def _briefly(adjustments: Adjustments, looking: Looking, model: str, target: str) -> str:
    if (adapter := looking.briefly_of_adapter(target)) is not None:
        return adapter
    return ", ".join(said for said in (looking.briefly(model), adjustments.briefly(model)) if said)


def _timekeeper(common: _Common, operators: Operators, looking: Looking) -> Timekeeper:
    return Timekeeper(
        units=common.units,
        operators=operators,
        memory=common.boxes.memory,
        resident=looking.resident,
        left=looking.left,
        clock=common.parts.clock,
        zone=zone_of(common.settings.schedule_timezone),
    )


def _custody(settings: Settings, units: Units, parts: Parts) -> Custody:
    ledgers = {d.name: Ledger(d.total_bytes, settings.headroom) for d in parts.devices}
    for device in parts.devices:
        ledgers[device.name].hold(Line.CONTEXT, "", device.context_bytes)
    tiered = [d.name for d in parts.devices if d.host_tier]
    held = Holdings(
        units.facts,
        ledgers,
        {d.name: d.kind for d in parts.devices},
        {d.name: d.slots for d in parts.devices},
        HostTier(host_memory(settings) if tiered else 0),
        tiered,
    )
    return Custody(held, memory_rules(settings))
