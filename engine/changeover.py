"""What is served changes while it is served: new entries, new versions of loaded models, and models that go.

It asks the actors that own what it changes, and owns only the order of the steps. A new version is loaded
beside the old one where both fit; then new requests go to it, and the old one leaves when its own have
ended. Where they do not fit, the old one leaves first, and requests wait as for a cold model.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any

import anyio
from anyio.abc import TaskGroup

from engine.actors.actor import Mailbox
from engine.actors.messages import (
    BatcherMessage,
    Drain,
    Load,
    MemoryMessage,
    Pin,
    RouterMessage,
    Unload,
    Unpin,
)
from engine.catalog import Catalog, ModelSpec
from engine.catalog_changes import with_entry
from engine.errors import EngineError, InvalidInput, NoRoom, Stopped
from engine.units import Units, base, parted, units_of
from engine.wishes import Pinned

log = logging.getLogger(__name__)

REPLACED = "its version serves no more"
"""Why the memory manager is told to let it go."""


class Changeover:
    """The only writer of `Units`. One change at a time: callers hold `lock`."""

    def __init__(
        self,
        *,
        units: Units,
        router: Mailbox[RouterMessage],
        batcher: Mailbox[BatcherMessage],
        memory: Mailbox[MemoryMessage],
        resident: Callable[[str], bool],
        pins: Mapping[str, Pinned],
        drain_limit: float,
    ) -> None:
        self.lock = anyio.Lock()
        self._units = units
        self._router = router
        self._batcher = batcher
        self._memory = memory
        self._resident = resident
        self._pins = pins
        self._drain_limit = drain_limit
        self._changing: dict[str, anyio.Event] = {}
        """Units whose pins are the change's own until it is over, by their names in the catalogue."""
        self._tasks: TaskGroup

    def begin(self, tasks: TaskGroup) -> None:
        """Where the leaving of old versions is waited for."""
        self._tasks = tasks

    def holds(self, unit: str) -> bool:
        """Whether its version changes now. What is wished of its pin is seen to when that is over."""
        return parted(unit)[0] in self._changing

    async def over(self, unit: str) -> None:
        """Until its version does not change any more, whichever serves then."""
        while changing := self._changing.get(parted(unit)[0]):
            await changing.wait()

    def serve(self, catalog: Catalog) -> None:
        """Entries that need no other weights take effect at once; units that nobody makes any more leave."""
        before = {u: self._units.serving(u) for spec in self._units.catalog for u in units_of(spec)}
        self._units.serve(catalog, {})
        gone = [serving for unit, serving in before.items() if not self._units.serves(unit)]
        if gone:
            self._tasks.start_soon(self._aside, self._retire(gone))

    async def replace(self, spec: ModelSpec) -> None:
        """Load what `spec` says for a model that is served, and serve that instead.

        Raises what the load of the new version raised; then the old one serves on, with its own entry.
        """
        old = {unit: self._units.serving(unit) for unit in units_of(spec) if self._units.serves(unit)}
        new = {unit: self._units.begin(spec, units_of(spec)[unit]) for unit in old}
        # What nobody has loaded need not be: the new version is loaded when it is asked for.
        pinned = {parted(unit)[0] for unit in self._pins}
        held = [unit for unit, serving in old.items() if self._resident(serving) or unit in pinned]

        def swap() -> None:
            self._units.serve(with_entry(self._units.catalog, spec), new)

        self._changing = {unit: anyio.Event() for unit in held}
        try:
            if await self._beside(held, old, new):
                swap()
            else:
                await self._with_a_hold(spec, held, old, new, swap)
            for unit in held:
                await self._settle(unit, new[unit])
        finally:
            for unit in tuple(self._changing):
                self._changing.pop(unit).set()
        self._tasks.start_soon(self._aside, self._retire([*old.values()]))

    def astray(self) -> set[str]:
        """Pinned adapters that entries of the catalogue do not have: their pins hold nothing meanwhile."""
        adapters = {unit for unit in self._pins if self._units.serves(parted(unit)[0])}
        return {unit for unit in adapters if not self._units.serves(unit)}

    async def drain(self, model: str, units: tuple[str, ...]) -> None:
        """Until no request for these units is on its way. Whoever wants no new ones pauses first."""
        await self._router.ask(Drain, model=model, units=units)
        await self._batcher.ask(Drain, model=model, units=units)

    async def _beside(self, held: Collection[str], old: Mapping[str, str], new: Mapping[str, str]) -> bool:
        """Have the new versions ready while the old ones serve; whether there is room for both.

        Pins hold the old ones in their place meanwhile, and the new ones until they are asked for.
        """
        try:
            for unit in held:
                if unit not in self._pins:
                    await self._memory.ask(Pin, unit=old[unit], passing=True)
            for unit in held:
                await self._have(unit, new[unit])
        except EngineError as error:
            await self._let_go(new[unit] for unit in held)
            beside = {old[unit] for unit in held}
            if isinstance(error, NoRoom) and not beside.isdisjoint(error.details.get("pins", ())):
                return False  # it may fit without the old one
            for unit in new.values():
                self._units.drop(unit)
            for unit in held:
                await self._settle(unit, old[unit])
            raise
        return True

    async def _with_a_hold(
        self,
        spec: ModelSpec,
        held: list[str],
        old: Mapping[str, str],
        new: Mapping[str, str],
        swap: Callable[[], None],
    ) -> None:
        """The old versions end what they have and leave; requests from now on wait for the new ones."""
        before = self._units.catalog
        log.warning("%s: old and new version do not fit together; requests wait while they change", spec.id)
        await self._unpin(old[unit] for unit in held)
        swap()
        try:
            with anyio.move_on_after(self._drain_limit):
                await self.drain(spec.id, tuple(old.values()))
                for unit in held:
                    await self._memory.ask(Unload, unit=old[unit], reason=REPLACED)
            for unit in held:
                await self._have(unit, new[unit])
        except EngineError:
            self._units.serve(with_entry(self._units.catalog, before.models[spec.id]), old)
            self._tasks.start_soon(self._aside, self._retire([*new.values()]))
            for unit in held:
                self._tasks.start_soon(self._aside, self._have_again(unit, old[unit]))
            raise

    async def _have_again(self, unit: str, old: str) -> None:
        """The version that serves after all was there before: it is again, and pinned if it was."""
        try:
            if unit in self._pins:
                await self._pin(old, self._pins[unit])
            else:
                await self._memory.ask(Load, unit=old)
        except EngineError as error:
            log.error("%s served before, and cannot be loaded again: %s", old, error)
            return
        for adapter in self._units.adapters(old):
            if wish := self._pins.get(base(adapter)):
                await self._as_wished(adapter, wish)

    async def _retire(self, units: list[str]) -> None:
        """Nobody sends them anything new: when what they have is done, they leave."""
        try:
            await self._unpin(units)
            await self.drain("", tuple(units))
            await self._let_go(units)
        except Stopped:
            return
        except EngineError as error:
            log.error("%s has left the catalogue and stays until there is need: %s", ", ".join(units), error)
        for unit in units:
            self._units.drop(unit)

    async def _let_go(self, units: Iterable[str]) -> None:
        for unit in units:
            await self._memory.ask(Unpin, unit=unit)
            with suppress(InvalidInput):  # somebody has pinned it again, and it is theirs
                await self._memory.ask(Unload, unit=unit, reason=REPLACED)

    async def _unpin(self, units: Iterable[str]) -> None:
        for unit in tuple(units):
            for each in (*self._units.adapters(unit), unit):
                await self._memory.ask(Unpin, unit=each)

    async def _settle(self, unit: str, serving: str) -> None:
        """Its change is over: it and its adapters stay where they are only if that is wished, maybe since a
        moment ago."""
        asked: dict[str, Pinned] | None = None
        while (wishes := self._wishes(unit)) != asked:
            seen_to = {unit, *(asked or ()), *wishes}
            for each in (*self._units.adapters(serving), serving):
                if base(each) in seen_to:
                    await self._as_wished(each, wishes.get(base(each)))
            asked = wishes
        self._changing.pop(unit).set()

    def _wishes(self, unit: str) -> dict[str, Pinned]:
        """What is wished of its pin and of those of its adapters."""
        return {name: wish for name, wish in self._pins.items() if parted(name)[0] == unit}

    async def _as_wished(self, serving: str, wish: Pinned | None) -> None:
        try:
            if wish is None:
                await self._memory.ask(Unpin, unit=serving)
            else:
                await self._pin(serving, wish)
        except EngineError as error:
            log.error("the pin of %s does not hold: %s", base(serving), error)

    async def _have(self, unit: str, new: str) -> None:
        """It is where it is wished to be, or its adapters are, until it serves; who has no room beside it
        waits for that."""
        wishes = [self._pins.get(base(each)) for each in (new, *self._units.adapters(new))]
        wish = next(filter(None, wishes), Pinned(unit))
        await self._memory.ask(Pin, unit=new, device=wish.device, min_slots=wish.min_slots, passing=True)

    async def _pin(self, unit: str, wish: Pinned) -> None:
        await self._memory.ask(Pin, unit=unit, device=wish.device, min_slots=wish.min_slots)

    async def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        """In a task of the engine's, and no reason for its end."""
        try:
            await work
        except Exception:
            log.exception("a change of versions broke")
