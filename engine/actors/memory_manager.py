"""The memory manager: the only writer of residency, leases and pins. It performs what `Custody` decides."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, assert_never

import anyio
from structlog.contextvars import bound_contextvars

from engine.actors.actor import Actor, Address, Mailbox, Reply
from engine.actors.messages import BatcherMessage, Event, Load, MemoryMessage, Pin, Unload, Unpin
from engine.conversation import (
    Denied,
    Expected,
    Granted,
    Inspected,
    Left,
    Loaded,
    LoadFailed,
    Lost,
    Need,
    Observed,
    Ready,
    Release,
    Spread,
    TooLarge,
    Unavailable,
    Unloaded,
    Unwanted,
    Wanted,
)
from engine.devices.device import DeviceLost
from engine.events import ResidencyChanged
from engine.loading import Loading, failure
from engine.memory.custody import Custody
from engine.memory.effects import Abandon, Answer, BeginLoad, BeginUnload, DropHost, Effect, Inspect


class MemoryManager(Actor[MemoryMessage]):
    """What is loaded, loading or leaving is its word alone; runners see its models under a lease."""

    def __init__(
        self,
        mailbox: Mailbox[MemoryMessage],
        *,
        custody: Custody,
        loading: Loading,
        batcher: Address[BatcherMessage],
        observers: Sequence[Address[Event]],
    ) -> None:
        super().__init__(mailbox)
        self.custody = custody
        self._loading = loading
        self._batcher = batcher
        self._observers = observers
        self._asks: dict[int, Reply[Any]] = {}
        self._numbers = itertools.count(1)

    @property
    def loading(self) -> Loading:
        """Where models come and go, for whoever closes the engine."""
        return self._loading

    def handle(self, message: MemoryMessage) -> None:
        self._perform(self._decide(message, self.now))

    def _decide(self, message: MemoryMessage, now: float) -> list[Effect]:
        custody = self.custody
        match message:
            case Wanted():
                return custody.on_wanted(message.unit, now, message.urgency, message.due, message.there)
            case Unwanted():
                return custody.on_unwanted(message.unit, now)
            case Expected():
                return custody.on_expected(message.unit, now)
            case Spread():
                return custody.on_spread(message.unit, message.device, now)
            case Need():
                return custody.on_need(message, now)
            case Release():
                return custody.on_release(message, now)
            case Lost():
                return custody.on_lost(message.device, message.reason, now)
            case Observed():
                return custody.on_observed(
                    message.device, message.foreign_bytes, now, message.allocated_bytes
                )
            case Load() | Unload() | Pin() | Unpin():
                return self._asked(message, self._ask(message.reply), now)
            case _:
                return self._came(message, now)

    def _came(self, message: Inspected | Loaded | LoadFailed | Unloaded, now: float) -> list[Effect]:
        """What was begun has ended."""
        custody = self.custody
        match message:
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
                return custody.on_unloaded(message.unit, message.device, now, message.kept_bytes)
            case _:
                assert_never(message)

    def _asked(self, message: Load | Unload | Pin | Unpin, ask: int, now: float) -> list[Effect]:
        """An operator wants something."""
        custody = self.custody
        match message:
            case Load():
                return custody.on_load(message.unit, ask, now)
            case Unload():
                return custody.on_unload(message.unit, ask, now, message.reason)
            case Pin():
                place = message.device, message.min_slots, message.passing
                return custody.on_pin(message.unit, ask, now, *place)
            case Unpin():
                return custody.on_unpin(message.unit, ask, now)
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
                    self.spawn(self._load, effect)
                case BeginUnload():
                    self.spawn(self._unload, effect)
                case DropHost():
                    self.spawn(self._loading.drop, effect.unit)
                case Abandon():
                    self.spawn(self._loading.abandon, effect.unit, effect.device)
                case Answer():
                    self._answer(effect)
                case ResidencyChanged():
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
            reply.resolve(None)

    async def _inspect(self, unit: str) -> None:
        try:
            with bound_contextvars(unit=unit):
                found = await self._loading.inspect(unit)
        except Exception as error:
            self.mailbox.tell(Inspected(unit, None, failure(unit, error)))
        else:
            self.mailbox.tell(Inspected(unit, found))

    async def _load(self, begin: BeginLoad) -> None:
        unit, device = begin.unit, begin.device
        began = anyio.current_time()
        try:
            with bound_contextvars(unit=unit, device=device):
                await self._loading.load(unit, device, begin.from_host)
        except DeviceLost as lost:
            self.mailbox.tell(Lost(device, str(lost)))
        except Exception as error:
            self.mailbox.tell(LoadFailed(unit, device, failure(unit, error)))
        else:
            self.mailbox.tell(Loaded(unit, device, anyio.current_time() - began))

    async def _unload(self, begin: BeginUnload) -> None:
        kept = await self._loading.unload(begin.unit, begin.device, begin.keep)
        self.mailbox.tell(Unloaded(begin.unit, begin.device, kept))
