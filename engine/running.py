"""All wiring: mailboxes, actors and databases, opened together and closed together."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import anyio
from sqlite_utils import Database

from engine.actors import state_store
from engine.actors.actor import Address, Mailbox, supervise
from engine.actors.batcher import Batcher
from engine.actors.memory_manager import MemoryManager
from engine.actors.messages import (
    BatcherMessage,
    Event,
    Flush,
    KeepCurves,
    MemoryMessage,
    Pin,
    RecorderMessage,
    RouterMessage,
    StateMessage,
    TelemetryMessage,
)
from engine.actors.model_runner import ModelRunner
from engine.actors.recorder import Recorder
from engine.actors.router import Intake, Router
from engine.actors.telemetry import Telemetry
from engine.adapters.family import GenerativeModel, Model
from engine.catalog import Catalog
from engine.config import Settings
from engine.conversation import Observed, Run
from engine.devices.device import Device
from engine.engine import Engine
from engine.errors import EngineError
from engine.looking import Looking
from engine.memory.custody import Custody
from engine.memory.holdings import Holdings
from engine.memory.ledger import Ledger
from engine.parts import Parts, memory_rules, real_parts, scheduling_rules
from engine.payloads import Payloads
from engine.preparation import Preparation
from engine.scheduling.curve import RuntimeCurve
from engine.scheduling.dispatch import Dispatch
from engine.units import Units

log = logging.getLogger(__name__)

CURVES_EVERY = 60.0
"""Seconds between writes of what was learned."""

FOREIGN_EVERY = 1.0
"""Seconds between looks at what others hold on a card."""

ASKS = 10_000
"""Requests that may lie in a mailbox unread; the loop is far behind when so many do."""


@asynccontextmanager
async def open_engine(
    settings: Settings, catalog: Catalog, parts: Parts | None = None
) -> AsyncIterator[Engine]:
    """An engine whose actors run until the block ends. Pinned models are resident when it begins."""
    parts = parts or await real_parts(settings, catalog)
    rules, units = scheduling_rules(settings), Units(catalog, settings.max_batch_cost)
    devices = {device.name: device for device in parts.devices}
    slots = {f"{d.name}/{n}": d.name for d in parts.devices for n in range(d.slots)}
    models: dict[tuple[str, str], Model | GenerativeModel] = {}
    payloads = Payloads()
    async with AsyncExitStack() as stack:
        router_box = stack.enter_context(Mailbox[RouterMessage](ASKS))
        batcher_box = stack.enter_context(Mailbox[BatcherMessage](ASKS))
        memory_box = stack.enter_context(Mailbox[MemoryMessage](ASKS))
        telemetry_box = stack.enter_context(Mailbox[TelemetryMessage](ASKS))
        recorder_box = stack.enter_context(Mailbox[RecorderMessage](ASKS))
        state_box = stack.enter_context(Mailbox[StateMessage](ASKS))
        runner_boxes = {slot: stack.enter_context(Mailbox[Run](1)) for slot in slots}
        observers: list[Address[Event]] = [telemetry_box]
        if parts.traffic is not None:
            observers.append(recorder_box)

        custody = Custody(
            Holdings(
                units.facts,
                {d.name: Ledger(d.total_bytes, settings.headroom) for d in parts.devices},
                {d.name: d.kind for d in parts.devices},
            ),
            memory_rules(settings),
        )
        memory = MemoryManager(
            memory_box,
            custody=custody,
            units=units,
            devices=devices,
            models=models,
            locate=parts.locate,
            family=parts.family,
            opening=parts.opening,
            batcher=batcher_box,
            observers=observers,
        )
        dispatch = Dispatch(units.facts, rules, slots)
        batcher = Batcher(
            batcher_box,
            dispatch=dispatch,
            max_hold=settings.max_hold,
            payloads=payloads,
            memory=memory_box,
            runners=runner_boxes,
            router=router_box,
            observers=observers,
        )
        router = Router(
            router_box,
            catalog=catalog,
            units=units,
            rules=rules,
            intake=Intake(settings.max_held_bytes, settings.preparation_backlog, settings.max_hold),
            preparation=Preparation(parts.locate, parts.family, parts.opening, parts.preparing),
            payloads=payloads,
            batcher=batcher_box,
            observers=observers,
        )
        telemetry = Telemetry(telemetry_box)
        looking = Looking(
            catalog=catalog,
            devices=devices,
            router=router,
            batcher=batcher,
            memory=memory,
            telemetry=telemetry,
            held_limit=settings.max_held_bytes,
        )
        engine = Engine(
            catalog=catalog,
            settings=settings,
            session_key=(settings.session_key or secrets.token_hex()).encode(),
            router=router_box,
            memory=memory_box,
            state=state_box,
            telemetry=telemetry_box,
            view=looking.view,
            metrics=partial(telemetry.exposition, looking.view),
        )

        def runner(slot: str, number: int) -> ModelRunner:
            return ModelRunner(
                runner_boxes[slot],
                name=slot,
                slot=number,
                device=devices[slots[slot]],
                models=models,
                payloads=payloads,
                batcher=batcher_box,
            )

        async with anyio.create_task_group() as tasks:
            for actor in (telemetry, memory, batcher, router):
                tasks.start_soon(actor.run, name=type(actor).__name__)
            for slot in slots:
                number = int(slot.rpartition("/")[2])
                tasks.start_soon(supervise, partial(runner, slot, number), name=slot)
            if parts.traffic is not None:
                recorder = Recorder(recorder_box, parts.traffic, keep_days=settings.record_days)
                tasks.start_soon(recorder.run, name="Recorder")
            if parts.state is not None:
                tasks.start_soon(state_store.StateStore(state_box, parts.state).run, name="StateStore")
                dispatch.sizing.curves |= _learned(state_store.curves(parts.state))
                tasks.start_soon(_keep_learning, dispatch, state_box)
            for device in parts.devices:
                if device.kind == "cuda":
                    tasks.start_soon(_watch, device, memory, memory_box)
            try:
                await _pin_all(engine, memory_box, [*settings.pins, *_kept_pins(parts.state)])
                yield engine
            finally:
                with anyio.CancelScope(shield=True):
                    await _close(models, dispatch, parts, state_box, recorder_box)
                tasks.cancel_scope.cancel()


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


async def _watch(device: Device, manager: MemoryManager, memory: Mailbox[MemoryMessage]) -> None:
    """Tell the memory manager what others hold on the card."""
    while True:
        await anyio.sleep(FOREIGN_EVERY)
        held = manager.custody.held.ledgers[device.name].used_bytes
        memory.tell(Observed(device.name, device.foreign_bytes(held)))


async def _close(
    models: dict[tuple[str, str], Model | GenerativeModel],
    dispatch: Dispatch,
    parts: Parts,
    state: Mailbox[StateMessage],
    recorder: Mailbox[RecorderMessage],
) -> None:
    """Write what must be written, and leave no child behind."""
    if parts.traffic is not None:
        await recorder.ask(Flush)
    if parts.state is not None:
        await _keep(dispatch, state)
    for model in tuple(models.values()):
        try:
            await parts.opening(model.unload)
        except Exception:
            log.exception("a model did not unload cleanly")
    for database in (parts.state, parts.traffic):
        if database is not None:
            database.close()
