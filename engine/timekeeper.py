"""Acts on the times of day in catalogue entries: models are loaded ahead, and unloaded when they rest."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

import anyio

from engine.actors.actor import Address
from engine.audit import Deed
from engine.conversation import Expected
from engine.errors import EngineError
from engine.operators import Operators
from engine.orders import Action, Order
from engine.schedule import Event, Timetable
from engine.units import Units, units_of

log = logging.getLogger(__name__)

LOOK_EVERY = 5.0
"""Seconds between looks at the clock: no event is later than that."""

PATIENCE = 3600.0
"""Seconds in which a model that is at work when it should be unloaded may come to rest."""

WHO = "schedule"


def zone_of(name: str | None) -> tzinfo:
    """The zone of that name, or the system's with its summer times."""
    if name := name or os.environ.get("TZ"):
        return ZoneInfo(name.lstrip(":"))
    try:
        with Path("/etc/localtime").open("rb") as file:
            return ZoneInfo.from_file(file)
    except (OSError, ValueError):
        return UTC


class Timekeeper:
    def __init__(
        self,
        *,
        units: Units,
        operators: Operators,
        memory: Address[Expected],
        resident: Callable[[str], bool],
        left: Callable[[Collection[str]], Mapping[str, int]],
        clock: Callable[[], float],
        zone: tzinfo,
    ) -> None:
        """`left`: what units still have to do, by kind. `clock`: seconds since the epoch."""
        self._units = units
        self._operators = operators
        self._memory = memory
        self._resident = resident
        self._left = left
        self._clock = clock
        self._table = Timetable(clock(), zone)
        self._unloading: dict[str, float] = {}
        """Models that should go when they rest, and until when that is waited for."""

    async def run(self) -> None:
        while True:
            await anyio.sleep(LOOK_EVERY)
            try:
                await self._look()
            except Exception:  # a time that breaks something ends nothing
                log.exception("what the schedule says cannot be done")

    async def _look(self) -> None:
        for event in self._table.due(self._events(), self._clock()):
            try:
                await self._act(event)
            except EngineError as error:
                log.error("%s: its %s did not come to pass: %s", event.model, event.action, error)
        for model, until in tuple(self._unloading.items()):
            if anyio.current_time() > until or await self._unloaded(model):
                del self._unloading[model]

    async def _act(self, event: Event) -> None:
        if event.action == "unload":
            self._unloading[event.model] = anyio.current_time() + PATIENCE
            return
        self._unloading.pop(event.model, None)
        await self._preheat(event.model)

    def _events(self) -> Iterator[Event]:
        for spec in self._units.catalog:
            for action, times in (("unload", spec.unload), ("preheat", spec.preheat)):
                if times:
                    yield Event(spec.id, action, times)

    async def _preheat(self, model: str) -> None:
        """The memory manager loads it if nothing warmer would have to go."""
        unit = self._units.catalog.resolve(model)[0].unit()

        async def tell() -> None:
            self._memory.tell(Expected(self._units.serving(unit)))

        await self._operators.audit.note(Deed("preheat", unit, model, WHO), tell)

    async def _unloaded(self, model: str) -> bool:
        """Whether nothing of it is there that may go. What is pinned stays."""
        spec = self._units.catalog.models.get(model)
        there = {} if spec is None else units_of(spec)
        for unit, profile in there.items():
            if unit in self._operators.pins or not self._units.serves(unit):
                continue
            serving = self._units.serving(unit)
            if not self._resident(serving):
                continue
            if any(self._left([serving]).values()):
                return False
            try:
                name = f"{model}:{profile}" if profile else model
                await self._operators.operate(Order(Action.UNLOAD, name, WHO))
            except EngineError as error:
                log.warning("%s was not unloaded on time: %s", unit, error)
        return True
