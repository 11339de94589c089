"""All wiring: which actor knows which, and nothing else. Nothing runs yet; see `engine/running.py`."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from engine.actors.actor import Actor, Address, Mailbox
from engine.actors.batcher import Batcher
from engine.actors.memory_manager import MemoryManager
from engine.actors.messages import (
    BatcherMessage,
    Event,
    MemoryMessage,
    RecorderMessage,
    RouterMessage,
    StateMessage,
    TelemetryMessage,
)
from engine.actors.model_runner import ModelRunner
from engine.actors.router import Intake, Router
from engine.actors.telemetry import Telemetry
from engine.adapters.family import GenerativeModel, Model
from engine.catalog import Catalog
from engine.config import Settings
from engine.conversation import Run
from engine.engine import Engine
from engine.looking import Looking
from engine.memory.custody import Custody
from engine.memory.holdings import Holdings
from engine.memory.ledger import Ledger
from engine.parts import Parts, memory_rules, scheduling_rules
from engine.payloads import Payloads
from engine.preparation import Preparation
from engine.scheduling.dispatch import Dispatch
from engine.units import Units, on_devices

ASKS = 10_000
"""Requests that may lie in a mailbox unread; the loop is far behind when so many do."""


@dataclass(frozen=True, slots=True)
class Boxes:
    """Every actor's mailbox. They outlive the actors, so that wiring has no cycles."""

    router: Mailbox[RouterMessage]
    batcher: Mailbox[BatcherMessage]
    memory: Mailbox[MemoryMessage]
    telemetry: Mailbox[TelemetryMessage]
    recorder: Mailbox[RecorderMessage]
    state: Mailbox[StateMessage]
    runners: dict[str, Mailbox[Run]]


@dataclass(frozen=True, slots=True)
class Wired:
    """What is to run, and what its keeper needs to know of it."""

    engine: Engine
    actors: tuple[Actor[Any], ...]
    runners: dict[str, Callable[[], ModelRunner]]
    dispatch: Dispatch
    models: dict[tuple[str, str], Model | GenerativeModel]


@contextmanager
def open_boxes(slots: list[str]) -> Iterator[Boxes]:
    with ExitStack() as stack:
        yield Boxes(
            router=stack.enter_context(Mailbox(ASKS)),
            batcher=stack.enter_context(Mailbox(ASKS)),
            memory=stack.enter_context(Mailbox(ASKS)),
            telemetry=stack.enter_context(Mailbox(ASKS)),
            recorder=stack.enter_context(Mailbox(ASKS)),
            state=stack.enter_context(Mailbox(ASKS)),
            runners={slot: stack.enter_context(Mailbox(1)) for slot in slots},
        )


def slots_of(parts: Parts) -> dict[str, tuple[str, int]]:
    """Every slot by name, with its device and its number there."""
    return {f"{d.name}/{n}": (d.name, n) for d in parts.devices for n in range(d.slots)}


def wire(settings: Settings, catalog: Catalog, parts: Parts, boxes: Boxes) -> Wired:
    catalog = on_devices(catalog, {device.kind for device in parts.devices})
    units, payloads = Units(catalog, settings.max_batch_cost), Payloads()
    rules, slots = scheduling_rules(settings), slots_of(parts)
    devices = {device.name: device for device in parts.devices}
    models: dict[tuple[str, str], Model | GenerativeModel] = {}
    observers: list[Address[Event]] = [boxes.telemetry]
    if parts.traffic is not None:
        observers.append(boxes.recorder)
    memory = MemoryManager(
        boxes.memory,
        custody=_custody(settings, units, parts),
        units=units,
        devices=devices,
        models=models,
        locate=parts.locate,
        family=parts.family,
        opening=parts.opening,
        batcher=boxes.batcher,
        observers=observers,
    )
    batcher = Batcher(
        boxes.batcher,
        dispatch=Dispatch(units.facts, rules, {slot: device for slot, (device, _) in slots.items()}),
        max_hold=settings.max_hold,
        payloads=payloads,
        memory=boxes.memory,
        runners=boxes.runners,
        router=boxes.router,
        observers=observers,
    )
    router = Router(
        boxes.router,
        catalog=catalog,
        units=units,
        rules=rules,
        intake=Intake(settings.max_held_bytes, settings.preparation_backlog, settings.max_hold),
        preparation=Preparation(parts.locate, parts.family, parts.opening, parts.preparing),
        payloads=payloads,
        batcher=boxes.batcher,
        observers=observers,
    )
    telemetry = Telemetry(boxes.telemetry)
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
        router=boxes.router,
        memory=boxes.memory,
        state=boxes.state if parts.state is not None else None,
        telemetry=boxes.telemetry,
        view=looking.view,
        metrics=partial(telemetry.exposition, looking.view),
    )
    runners = {
        slot: partial(
            ModelRunner,
            boxes.runners[slot],
            name=slot,
            slot=number,
            device=devices[device],
            models=models,
            payloads=payloads,
            batcher=boxes.batcher,
        )
        for slot, (device, number) in slots.items()
    }
    actors = (telemetry, memory, batcher, router)
    return Wired(engine, actors, dict(runners), batcher.dispatch, models)


def _custody(settings: Settings, units: Units, parts: Parts) -> Custody:
    ledgers = {d.name: Ledger(d.total_bytes, settings.headroom) for d in parts.devices}
    held = Holdings(units.facts, ledgers, {d.name: d.kind for d in parts.devices})
    return Custody(held, memory_rules(settings))
