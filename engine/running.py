"""The engine's life: opened, kept going and closed. What knows what is in `engine/wiring.py`."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup
from sqlite_utils import Database

from engine.actors import state_store
from engine.actors.actor import Mailbox, supervise
from engine.actors.messages import Flush, KeepCurves, MemoryMessage, Pin, StateMessage
from engine.actors.recorder import Recorder
from engine.catalog import Catalog
from engine.config import Settings
from engine.conversation import Observed
from engine.devices.device import Device
from engine.engine import Engine
from engine.errors import EngineError
from engine.parts import Parts, real_parts
from engine.scheduling.curve import RuntimeCurve
from engine.scheduling.dispatch import Dispatch
from engine.wiring import Boxes, Wired, open_boxes, slots_of, wire

log = logging.getLogger(__name__)

CURVES_EVERY = 60.0
"""Seconds between writes of what was learned."""

FOREIGN_EVERY = 1.0
"""Seconds between looks at what others hold on a card."""

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
            try:
                await _pin_all(wired.engine, boxes.memory, [*settings.pins, *_kept_pins(parts.state)])
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
        recorder = Recorder(boxes.recorder, parts.traffic, keep_days=settings.record_days)
        tasks.start_soon(recorder.run, name="Recorder")
    if parts.state is not None:
        tasks.start_soon(state_store.StateStore(boxes.state, parts.state).run, name="StateStore")
        wired.dispatch.sizing.curves |= _learned(state_store.curves(parts.state))
        tasks.start_soon(_keep_learning, wired.dispatch, boxes.state)
    for device in parts.devices:
        if device.kind == "cuda":
            tasks.start_soon(_watch, device, boxes.memory)


def _learned(
    kept: Mapping[tuple[str, str], Mapping[str, tuple[float, float, int]]],
) -> dict[tuple[str, str], RuntimeCurve]:
    curves = {}
    for key, points in kept.items():
        curves[key] = RuntimeCurve()
        curves[key].learn(points)
    return curves


async def _keep_learning(dispatch: Dispatch, state: Mailbox[StateMessage]) -> None:
    while True:
        await anyio.sleep(CURVES_EVERY)
        await _keep(dispatch, state)


async def _keep(dispatch: Dispatch, state: Mailbox[StateMessage]) -> None:
    points = {key: curve.points() for key, curve in dispatch.sizing.curves.items()}
    await state.ask(KeepCurves, curves=points)


def _kept_pins(state: Database | None) -> list[str]:
    return state_store.pins(state) if state is not None else []


async def _pin_all(engine: Engine, memory: Mailbox[MemoryMessage], names: list[str]) -> None:
    """Pins are loaded before traffic is admitted. One that cannot be is an alarm, not an end."""

    async def pin(name: str) -> None:
        try:
            spec, profile = engine.catalog.resolve(name.partition("@")[0])
            await memory.ask(Pin, unit=name if "@" in name else spec.unit(profile))
        except EngineError as error:
            log.error("the pin of %s does not hold: %s", name, error)

    async with anyio.create_task_group() as tasks:
        for name in dict.fromkeys(names):
            tasks.start_soon(pin, name)


async def _watch(device: Device, memory: Mailbox[MemoryMessage]) -> None:
    """Tell the memory manager what others hold on the card."""
    while True:
        await anyio.sleep(FOREIGN_EVERY)
        memory.tell(Observed(device.name, device.foreign_bytes()))


async def _close(parts: Parts, boxes: Boxes, wired: Wired) -> None:
    """Write what must be written, and leave no child behind."""
    for model in tuple(wired.models.values()):
        try:
            await parts.opening(model.unload)
        except Exception:
            log.exception("a model did not unload cleanly")
    if parts.traffic is not None:
        await boxes.recorder.ask(Flush)
    if parts.state is not None:
        await _keep(wired.dispatch, boxes.state)
    for database in (parts.state, parts.traffic):
        if database is not None:
            database.close()
