"""The memory manager: the only writer of residency, leases and pins. It performs what `Custody` decides."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, assert_never

import anyio

from engine.actors.actor import Actor, Address, Mailbox, Reply
from engine.actors.messages import BatcherMessage, Event, Load, MemoryMessage, Pin, Unload, Unpin
from engine.adapters.family import Family, GenerativeModel, Model
from engine.catalog import ModelSpec
from engine.conversation import (
    Denied,
    Granted,
    Inspected,
    Left,
    Loaded,
    LoadFailed,
    Need,
    Observed,
    Ready,
    Release,
    TooLarge,
    Unavailable,
    Unloaded,
    Unwanted,
    Wanted,
)
from engine.devices.device import Device
from engine.errors import EngineError, Failure
from engine.errors import LoadFailed as LoadFailedError
from engine.events import ResidencyChanged
from engine.memory.custody import Answer, BeginLoad, BeginUnload, Custody, Effect, Inspect
from engine.memory.footprint import Footprint
from engine.offload import Offload
from engine.units import Units

log = logging.getLogger(__name__)


class MemoryManager(Actor[MemoryMessage]):
    """What is loaded, loading or leaving is its word alone; runners see its models under a lease."""

    def __init__(
        self,
        mailbox: Mailbox[MemoryMessage],
        *,
        custody: Custody,
        units: Units,
        devices: Mapping[str, Device],
        models: MutableMapping[tuple[str, str], Model | GenerativeModel],
        locate: Callable[[ModelSpec], Path],
        family: Callable[[str], Family],
        opening: Offload,
        batcher: Address[BatcherMessage],
        observers: Sequence[Address[Event]],
    ) -> None:
        super().__init__(mailbox)
        self.custody = custody
        self._units = units
        self._devices = devices
        self._models = models
        self._locate = locate
        self._family = family
        self._opening = opening
        self._batcher = batcher
        self._observers = observers
        self._asks: dict[int, Reply[Any]] = {}
        self._numbers = itertools.count(1)

    def handle(self, message: MemoryMessage) -> None:
        now = anyio.current_time()
        self._perform(self._decide(message, now))

    def _decide(self, message: MemoryMessage, now: float) -> list[Effect]:
        custody = self.custody
        match message:
            case Wanted():
                return custody.on_wanted(message.unit, now)
            case Unwanted():
                return custody.on_unwanted(message.unit, now)
            case Need():
                return custody.on_need(message, now)
            case Release():
                return custody.on_release(message, now)
            case Inspected(footprint=footprint) if footprint is not None:
                return custody.on_inspected(message.unit, footprint, now)
            case Inspected():
                assert message.failure is not None
                return custody.on_inspect_failed(message.unit, message.failure, now)
            case Loaded():
                return custody.on_loaded(message.unit, message.device, message.seconds, now)
            case LoadFailed():
                return custody.on_load_failed(message.unit, message.device, message.failure, now)
            case Unloaded():
                return custody.on_unloaded(message.unit, message.device, now)
            case Observed():
                return custody.on_observed(message.device, message.foreign_bytes, now)
            case Load():
                return custody.on_load(message.unit, self._ask(message.reply), now)
            case Unload():
                return custody.on_unload(message.unit, self._ask(message.reply), now)
            case Pin():
                return custody.on_pin(message.unit, self._ask(message.reply), now)
            case Unpin():
                return custody.on_unpin(message.unit, self._ask(message.reply), now)
            case _:
                assert_never(message)

    def wake_at(self) -> float:
        return self.custody.wake_at

    def wake(self) -> None:
        self._perform(self.custody.on_wake(anyio.current_time()))

    def _ask(self, reply: Reply[Any]) -> int:
        number = next(self._numbers)
        self._asks[number] = reply
        return number

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Inspect():
                    self.spawn(self._inspect, effect.unit)
                case BeginLoad():
                    self.spawn(self._load, effect.unit, effect.device)
                case BeginUnload():
                    self.spawn(self._unload, effect.unit, effect.device)
                case Answer():
                    self._answer(effect)
                case ResidencyChanged():
                    told = f": {effect.reason}" if effect.reason else ""
                    log.info("%s on %s: %s%s", effect.unit, effect.device, effect.event, told)
                    for observer in self._observers:
                        observer.tell(effect)
                case Granted() | Denied() | TooLarge() | Ready() | Left() | Unavailable():
                    self._batcher.tell(effect)
                case _:
                    assert_never(effect)

    def _answer(self, answer: Answer) -> None:
        reply = self._asks.pop(answer.ask)
        if answer.error is not None:
            reply.fail(answer.error)
        else:
            reply.resolve(answer.displaced)

    async def _inspect(self, unit: str) -> None:
        spec = self._units.spec(unit)

        def footprint() -> Footprint:
            return self._family(spec.family).footprint(spec, self._locate(spec))

        try:
            found = await self._opening(footprint)
        except Exception as error:
            self.mailbox.tell(Inspected(unit, None, _failure(unit, error)))
        else:
            self.mailbox.tell(Inspected(unit, found))

    async def _load(self, unit: str, device: str) -> None:
        spec, where = self._units.spec(unit), self._devices[device]

        def load() -> Model | GenerativeModel:
            return self._family(spec.family).load(spec, self._locate(spec), where.torch_device)

        began = anyio.current_time()
        try:
            self._models[unit, device] = await where.load(unit, load)
        except Exception as error:
            self.mailbox.tell(LoadFailed(unit, device, _failure(unit, error)))
        else:
            self.mailbox.tell(Loaded(unit, device, anyio.current_time() - began))

    async def _unload(self, unit: str, device: str) -> None:
        model = self._models.pop((unit, device))
        try:
            await self._devices[device].unload(unit, model.unload)
        except Exception:
            log.exception("%s did not unload cleanly", unit)
        self.mailbox.tell(Unloaded(unit, device))


def _failure(unit: str, error: Exception) -> Failure:
    if isinstance(error, EngineError):
        return error.failure()
    log.error("%s could not be loaded", unit, exc_info=error)
    text = f"{unit} could not be loaded: {type(error).__name__}: {error}"
    return LoadFailedError(text[:500], error_class=type(error).__name__, permanent=False).failure()
