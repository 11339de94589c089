"""What operators may have done: each act is checked, audited, done by whoever owns what it changes, and kept.

An act goes on when whoever asked for it leaves: half of it would be worse.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, assert_never

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskGroup, TaskStatus

from engine.actors.actor import Mailbox, Reply
from engine.actors.messages import Pause, Resume, RouterMessage
from engine.adjustments import Adjustments
from engine.audit import Audit, Deed
from engine.catalog import ModelSpec
from engine.catalog_changes import compare, with_entry
from engine.cataloguing import Cataloguing
from engine.changeover import Changeover
from engine.errors import EngineError, InvalidInput, StillBusy, Stopped
from engine.offload import Offload
from engine.orders import CATALOGUE, EVERY_MODEL, Action, CatalogDone, Done, Order, Previewed
from engine.own_entries import parse
from engine.presence import Presence
from engine.units import Units, adapted, parted, units_of
from engine.view import CatalogView
from engine.wishes import Audited, Closed, Kept, Opened, Pinned, Unpinned

log = logging.getLogger(__name__)
T = TypeVar("T")


class Operators:
    def __init__(
        self,
        *,
        units: Units,
        kinds: Iterable[str],
        audit: Audit,
        changeover: Changeover,
        presence: Presence,
        router: Mailbox[RouterMessage],
        opening: Offload,
        left: Callable[[Collection[str]], dict[str, int]],
        displaced: Callable[[], Awaitable[tuple[str, ...]]],
        paused: Callable[[str], bool],
        drain_limit: float,
        adjustments: Adjustments,
        own: Path,
    ) -> None:
        """`own` is the directory of entries that are added while serving; `displaced` says which units no
        longer fit beside the pins."""
        self.audit = audit
        self.pins = presence.pins
        self._units = units
        self._changeover = changeover
        self._presence = presence
        self._router = router
        self._left = left
        self._displaced = displaced
        self._paused = paused
        self._gate = anyio.Lock()
        """Who is paused changes in the same order here and on disk."""
        self._drain_limit = drain_limit
        self._adjustments = adjustments
        self._catalogue = Cataloguing(
            units=units,
            kinds=kinds,
            audit=audit,
            changeover=changeover,
            adjustments=adjustments,
            opening=opening,
            own=own,
            come_again=self._pin_again,
        )
        self._tasks: TaskGroup

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Started when acts can be asked for."""
        async with anyio.create_task_group() as self._tasks:
            self._changeover.begin(self._tasks)
            task_status.started()
            await anyio.sleep_forever()

    async def operate(self, order: Order) -> Done:
        """Raises UnknownModel, StateChanged, and what the one who does it raises."""
        if order.model == EVERY_MODEL and order.action in (Action.PAUSE, Action.RESUME):
            model = target = EVERY_MODEL
        else:
            named, adapter = self._units.catalog.adapted(order.model)
            spec, profile = self._units.catalog.resolve(named)
            model, target = spec.id, spec.unit(profile)
            if adapter is not None:
                target = _of_adapter(order, target, adapter)
            if order.action is Action.ADJUST:
                target = f"{model}:{profile}" if profile else model
                self._adjustments.wished(target, order.changes)
        deed = Deed(order.action, target, model, order.who, order.reason)
        self.audit.begin(deed, order.if_version)
        price = await self._apart(lambda: self._act(order, deed))
        return Done(self.audit.version(model), price)

    async def reload_catalog(
        self, who: str = "operator", reason: str = "", if_version: int | None = None
    ) -> CatalogDone:
        """Read the files again, and serve what they say now. Raises CatalogRejected with every complaint."""
        deed = Deed("reload", CATALOGUE, CATALOGUE, who, reason)
        self.audit.begin(deed, if_version)
        return await self._apart(lambda: self._catalogue.reload(deed))

    async def add_entry(
        self, text: str, who: str = "operator", reason: str = "", if_version: int | None = None
    ) -> CatalogDone:
        """Serve one more entry, kept in a file of its own. Raises CatalogRejected, InvalidInput."""
        entry = parse(text)
        deed = Deed("add-entry", entry.spec.id, CATALOGUE, who, reason)
        self.audit.begin(deed, if_version)
        return await self._apart(lambda: self._catalogue.add(entry, deed))

    async def remove_entry(
        self, model: str, who: str = "operator", reason: str = "", if_version: int | None = None
    ) -> CatalogDone:
        """Of one that was added so. Raises UnknownModel, InvalidInput, CatalogRejected."""
        deed = Deed("remove-entry", model, CATALOGUE, who, reason)
        self.audit.begin(deed, if_version)
        return await self._apart(lambda: self._catalogue.remove(model, deed))

    async def preview_entry(self, text: str) -> Previewed:
        """What would change with it. Raises CatalogRejected, InvalidInput."""
        return await self._catalogue.preview(parse(text))

    async def added_entries(self) -> frozenset[str]:
        """Models whose entries were added so."""
        return await self._catalogue.added()

    def catalog(self) -> CatalogView:
        return self._catalogue.view()

    def adjusted(self, target: str) -> Mapping[str, Any]:
        """What operators changed of a model's limits, class and share, or of a profile's limits."""
        return self._adjustments.of(target)

    def entry(self, model: str) -> ModelSpec:
        """As the files have it, without what is adjusted."""
        return self._adjustments.entries.models[model]

    def version(self, model: str) -> int:
        """The number of the last act on the model with this id."""
        return self.audit.version(model)

    async def history(self, limit: int, target: str | None = None) -> list[Audited]:
        return await self.audit.history(limit, target)

    async def _act(self, order: Order, deed: Deed) -> tuple[str, ...]:
        unit, model = deed.target, deed.model
        match order.action:
            case Action.LOAD:
                await self.audit.of(deed, lambda: self._presence.load(unit))
            case Action.UNLOAD:
                await self.audit.of(deed, lambda: self._presence.unload(self._units.serving(unit)))
            case Action.PIN:
                await self._pin(Pinned(unit, order.device, order.min_slots), deed)
                return await self._displaced()  # it reads files: what was done is on disk before
            case Action.UNPIN:
                await self._kept(deed, lambda: self._presence.unpin(unit), Unpinned(unit))
            case Action.PAUSE:
                await self._pause(deed)
            case Action.RESUME:
                async with self._gate:
                    await self._kept(deed, lambda: self._router.ask(Resume, model=model), Opened(model))
            case Action.DRAIN:
                await self.audit.of(deed, lambda: self._drain(model, deed))
            case Action.RELOAD:
                await self.audit.of(deed, lambda: self._renew(model))
            case Action.ADJUST:
                await self._adjust(order, deed)
            case _:
                assert_never(order.action)
        return ()

    async def _kept(self, deed: Deed, do: Callable[[], Awaitable[None]], kept: Kept) -> None:
        await self.audit.of(deed, do, kept)

    async def _pin(self, wish: Pinned, deed: Deed) -> None:
        await self._kept(deed, lambda: self._presence.pin(wish), wish)

    async def _pause(self, deed: Deed) -> None:
        async with self._gate:
            await self._kept(deed, lambda: self._router.ask(Pause, model=deed.model), Closed(deed.model))

    async def _drain(self, model: str, deed: Deed) -> None:
        """Nothing new, then wait for the rest, then unload. Raises StillBusy; the pause stays all the same.

        The pause is an act of its own, on disk before the wait: whoever resumes the model meanwhile has the
        last word.
        """
        units = units_of(self._units.catalog.resolve(model)[0])
        mine = [unit for unit in self.pins if parted(unit)[0] in units]
        if pinned := [unit for unit in mine if self._units.serves(unit)]:  # of others nobody can undo it
            raise InvalidInput(f"{', '.join(pinned)} is pinned; unpin it first.")
        pause = Deed("pause", model, model, deed.who, deed.reason or "to drain it")
        self.audit.begin(pause)
        await self._pause(pause)
        with suppress(StillBusy), anyio.move_on_after(self._drain_limit):
            await self._empty(model, units)
            return
        left = self._left(tuple(self._units.versions(model)))
        said = ", ".join(f"{count} {what}" for what, count in left.items() if count) or "its weights"
        stays = f"{model} stays paused; drain it again."
        resumed = f"{model} was resumed meanwhile, and takes requests."
        now = stays if self._paused(model) else resumed
        raise StillBusy(f"After {self._drain_limit:g} s there are still {said}. {now}", left=left)

    async def _empty(self, model: str, units: Collection[str]) -> None:
        for unit in units:
            await self._changeover.over(unit)
        there = tuple(self._units.versions(model))
        await self._changeover.drain(model, there)
        for version in there:
            await self._presence.unload(version)

    async def _adjust(self, order: Order, deed: Deed) -> None:
        """At once; a model that generates sets memory aside by its limits, and is loaded anew."""
        async with self._changeover.lock:
            wish = self._adjustments.wished(deed.target, order.changes)
            spec = self._adjustments.entry(wish)
            change = compare(self._units.catalog, with_entry(self._units.catalog, spec))

            async def do() -> None:
                if change.replaced:
                    await self._changeover.replace(spec)
                else:
                    self._changeover.serve(with_entry(self._units.catalog, spec))
                self._adjustments.keep(wish)

            await self.audit.of(deed, do, wish)

    async def _renew(self, model: str) -> None:
        async with self._changeover.lock:
            await self._changeover.replace(self._units.catalog.resolve(model)[0])

    async def _pin_again(self, spec: ModelSpec) -> None:
        """An entry that was gone is there again, and so are its pins and those of its adapters."""
        for unit, wish in tuple(self.pins.items()):
            if parted(unit)[0] in units_of(spec) and self._units.serves(unit):
                deed = Deed("pin", unit, spec.id, CATALOGUE, "its entry is there again")
                self.audit.begin(deed)
                try:
                    await self._pin(wish, deed)
                except EngineError as error:
                    log.error("the pin of %s does not hold: %s", unit, error)

    async def _apart(self, work: Callable[[], Awaitable[T]]) -> T:
        """In the engine's own tasks, so that whoever asked may leave."""
        reply: Reply[T] = Reply()

        async def do() -> None:
            try:
                reply.resolve(await work())
            except EngineError as error:
                reply.fail(error)
            except Exception:  # in a task of the engine's, and no reason for its end
                log.exception("an act of an operator broke")
                reply.fail(EngineError())
            finally:
                reply.fail(Stopped())

        self._tasks.start_soon(do)
        return await reply


def _of_adapter(order: Order, unit: str, adapter: str) -> str:
    """The unit that the order is about. Raises InvalidInput for what is done to whole models alone."""
    if order.action not in (Action.LOAD, Action.UNLOAD, Action.PIN, Action.UNPIN):
        raise InvalidInput(f"{order.action} is for {unit} as a whole; of its adapters, load or pin one.")
    return adapted(unit, adapter)
