"""The engine's life: opened, kept going and closed. What knows what is in `engine/wiring.py`."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup
from sqlite_utils import Database

from engine.actors import state_store
from engine.actors.actor import Mailbox, Reply, supervise
from engine.actors.messages import MemoryMessage, Pause, Pin
from engine.actors.recorder import Recorder
from engine.actors.recorder_messages import Flush
from engine.actors.state_messages import KeepCurves, KeepWorkspaces, StateMessage
from engine.boxes import Boxes, open_boxes
from engine.catalog import Catalog
from engine.config import Settings
from engine.conversation import Observed
from engine.devices.device import Device
from engine.engine import Engine
from engine.errors import EngineError
from engine.parts import Parts, real_parts
from engine.scheduling.curve import RuntimeCurve
from engine.units import Units, base
from engine.watching import watch
from engine.wiring import Wired, slots_of, wire
from engine.wishes import Pinned

log = logging.getLogger(__name__)
T = TypeVar("T")

CURVES_EVERY = 60.0
"""Seconds between writes of what was learned."""

FOREIGN_EVERY = 1.0
"""Seconds between looks at what a device holds."""

CLOSING = 10.0
"""Seconds that closing may take: after a crash there may be nobody left who answers."""


@asynccontextmanager
async def open_engine(
    settings: Settings, catalog: Catalog, parts: Parts | None = None
) -> AsyncIterator[Engine]:
    """An engine whose actors run until the block ends. Pinned models are resident when it begins."""
    parts = parts or await real_parts(settings, catalog)
    with open_boxes(list(slots_of(parts))) as boxes:
        wired = wire(settings, catalog, parts, boxes)
        async with anyio.create_task_group() as tasks:
            _start(tasks, settings, parts, boxes, wired)
            await tasks.start(wired.operators.run, name="Operators")
            try:
                await _pin_all(wired, boxes.memory, _wishes(settings, parts.state))
                tasks.start_soon(wired.timekeeper.run, name="Timekeeper")
                if settings.catalog_watch and wired.units.catalog.directories:
                    tasks.start_soon(watch, wired.units, wired.operators, parts.opening)
                yield wired.engine
            finally:
                with anyio.move_on_after(CLOSING, shield=True):
                    await _close(parts, boxes, wired)
                tasks.cancel_scope.cancel()
                if parts.lock is not None:
                    parts.lock.release()


def _start(tasks: TaskGroup, settings: Settings, parts: Parts, boxes: Boxes, wired: Wired) -> None:
    """Runners get a fresh life after a crash; a crash of any other actor ends the engine."""
    for actor in wired.actors:
        tasks.start_soon(actor.run, name=type(actor).__name__)
    for slot, make in wired.runners.items():
        tasks.start_soon(supervise, make, name=slot)
    if parts.traffic is not None:
        engine = wired.engine
        recorder = Recorder(
            boxes.recorder,
            parts.traffic,
            keep_days=settings.record_days,
            look=engine.view,
            shown=engine.recordings.show,
        )
        tasks.start_soon(recorder.run, name="Recorder")
    if parts.state is not None:
        tasks.start_soon(state_store.StateStore(boxes.state, parts.state).run, name="StateStore")
        wired.dispatch.sizing.curves |= _learned(state_store.curves(parts.state))
        wired.custody.learn(state_store.workspaces(parts.state))
        for model in state_store.paused(parts.state):
            boxes.router.tell(Pause(Reply(), model))
        tasks.start_soon(_keep_learning, wired, boxes.state)
        tasks.start_soon(wired.engine.access.watch)
    for device in parts.devices:
        if device.watched:
            tasks.start_soon(_watch, device, boxes.memory)


def _learned(
    kept: Mapping[tuple[str, str], Mapping[str, tuple[float, float, int]]],
) -> dict[tuple[str, str], RuntimeCurve]:
    curves = {}
    for key, points in kept.items():
        curves[key] = RuntimeCurve()
        curves[key].learn(points)
    return curves


async def _keep_learning(wired: Wired, state: Mailbox[StateMessage]) -> None:
    while True:
        await anyio.sleep(CURVES_EVERY)
        await _keep(wired, state)


async def _keep(wired: Wired, state: Mailbox[StateMessage]) -> None:
    """By the names that units have after a restart: what a version that is leaving knew is forgotten."""
    curves = {key: curve.points() for key, curve in wired.dispatch.sizing.curves.items()}
    await state.ask(KeepCurves, curves=_by_base(wired.units, curves))
    await state.ask(KeepWorkspaces, workspaces=_by_base(wired.units, wired.custody.learned()))


def _by_base(units: Units, learned: Mapping[tuple[str, str], T]) -> dict[tuple[str, str], T]:
    serving = {units.serving(base(unit)) for unit, _ in learned if units.serves(base(unit))}
    return {(base(unit), device): known for (unit, device), known in learned.items() if unit in serving}


def _wishes(settings: Settings, state: Database | None) -> list[Pinned]:
    """What the settings pin, and what operators pinned before; of the same unit what the operator said."""
    kept = state_store.pins(state) if state is not None else []
    return [*kept, *(Pinned(name) for name in settings.pins)]


async def _pin_all(wired: Wired, memory: Mailbox[MemoryMessage], wishes: list[Pinned]) -> None:
    """Pins are loaded before traffic is admitted. One that cannot be is an alarm, not an end; it is kept
    for when the catalogue has it again."""
    units, pins = wired.units, wired.operators.pins

    async def pin(wish: Pinned) -> None:
        try:
            serving = units.serving(wish.unit)
            await memory.ask(Pin, unit=serving, device=wish.device, min_slots=wish.min_slots)
        except EngineError as error:
            log.error("the pin of %s does not hold: %s", wish.unit, error)

    for wish in wishes:
        unit = _unit(units, wish.unit)
        pins.setdefault(unit, replace(wish, unit=unit))
    async with anyio.create_task_group() as tasks:
        for wish in pins.values():
            tasks.start_soon(pin, wish)


def _unit(units: Units, name: str) -> str:
    """What the catalogue calls the unit that a pin names: a unit, a model, an alias, a profile."""
    if units.serves(name) or "@" in name:
        return name
    try:
        spec, profile = units.catalog.resolve(name)
    except EngineError:
        return name
    return spec.unit(profile)


async def _watch(device: Device, memory: Mailbox[MemoryMessage]) -> None:
    """Tell the memory manager what others hold on the device, and what we do."""
    while True:
        await anyio.sleep(FOREIGN_EVERY)
        seen = await device.seen()
        memory.tell(Observed(device.name, seen.foreign_bytes, seen.allocated_bytes))


async def _close(parts: Parts, boxes: Boxes, wired: Wired) -> None:
    """Write what must be written, and leave no child behind."""
    for model in tuple(wired.models.values()):
        try:
            await parts.opening(model.unload)
        except Exception:
            log.exception("a model did not unload cleanly")
    await wired.loading.close()
    if parts.traffic is not None:
        await boxes.recorder.ask(Flush)
    if parts.state is not None:
        await _keep(wired, boxes.state)
        await wired.engine.access.keep()
    for database in (parts.state, parts.traffic):
        if database is not None:
            database.close()
