"""What operators may have done: each act is checked, audited, done by whoever owns what it changes, and kept.

An act goes on when whoever asked for it leaves: half of it would be worse.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from typing import TypeVar, assert_never

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskGroup, TaskStatus
from anyio.lowlevel import checkpoint

from engine import catalog as catalogues
from engine.actors.actor import Mailbox, Reply
from engine.actors.messages import Pause, Resume, RouterMessage
from engine.audit import Audit, Deed
from engine.catalog import Catalog, CatalogError, ModelSpec
from engine.catalog_changes import CatalogChange, compare, meanwhile
from engine.changeover import Changeover
from engine.errors import CatalogRejected, EngineError, InvalidInput, StillBusy, Stopped
from engine.offload import Offload
from engine.orders import CATALOGUE, EVERY_MODEL, Action, CatalogDone, Done, Order
from engine.presence import Presence
from engine.units import Units, on_devices, units_of
from engine.view import CatalogView
from engine.wishes import Audited, Closed, Kept, Opened, Pinned, Unpinned

log = logging.getLogger(__name__)
T = TypeVar("T")

CHANGED = "its entry in the catalogue's files"


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
        paused: Callable[[str], bool],
        drain_limit: float,
    ) -> None:
        self.audit = audit
        self.pins = presence.pins
        self._complaints: tuple[str, ...] = ()
        self._last_change: CatalogDone | None = None
        self._units = units
        self._kinds = frozenset(kinds)
        self._changeover = changeover
        self._presence = presence
        self._router = router
        self._opening = opening
        self._left = left
        self._paused = paused
        self._gate = anyio.Lock()
        """Who is paused changes in the same order here and on disk."""
        self._drain_limit = drain_limit
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
            spec, profile = self._units.catalog.resolve(order.model)
            model, target = spec.id, spec.unit(profile)
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
        return await self._apart(lambda: self._reload(deed))

    def catalog(self) -> CatalogView:
        """What is served, and how its files are."""
        catalog = self._units.catalog
        return CatalogView(
            directories=tuple(map(str, catalog.directories)),
            models=len(catalog),
            version=self.audit.version(CATALOGUE),
            complaints=self._complaints,
            last_change=self._last_change,
        )

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
                return await self._pin(Pinned(unit, order.device, order.min_slots), deed)
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
            case _:
                assert_never(order.action)
        return ()

    async def _kept(self, deed: Deed, do: Callable[[], Awaitable[None]], kept: Kept) -> None:
        await self.audit.of(deed, do, kept)

    async def _pin(self, wish: Pinned, deed: Deed) -> tuple[str, ...]:
        return await self.audit.of(deed, lambda: self._presence.pin(wish), wish)

    async def _pause(self, deed: Deed) -> None:
        async with self._gate:
            await self._kept(deed, lambda: self._router.ask(Pause, model=deed.model), Closed(deed.model))

    async def _drain(self, model: str, deed: Deed) -> None:
        """Nothing new, then wait for the rest, then unload. Raises StillBusy; the pause stays all the same.

        The pause is an act of its own, on disk before the wait: whoever resumes the model meanwhile has the
        last word.
        """
        units = units_of(self._units.catalog.resolve(model)[0])
        if pinned := [unit for unit in units if unit in self.pins]:
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

    async def _renew(self, model: str) -> None:
        async with self._changeover.lock:
            await self._changeover.replace(self._units.catalog.resolve(model)[0])

    async def _reload(self, deed: Deed) -> CatalogDone:
        async with self._changeover.lock:
            return await self.audit.of(deed, lambda: self._apply(deed.who))

    async def _apply(self, who: str) -> CatalogDone:
        old, new = self._units.catalog, await self._read()
        change = compare(old, new)
        self._changeover.serve(meanwhile(old, new, change.replaced))
        replaced, rolled_back = [], {}
        for name in change.replaced:
            deed = Deed("replace", name, name, who, CHANGED)
            try:
                await self.audit.note(deed, partial(self._changeover.replace, new.models[name]))
                replaced.append(name)
            except EngineError as error:
                log.error("%s is served as before, its new version failed: %s", name, error)
                rolled_back[name] = error.message
        await self._tell(change, who)
        for name in change.added:
            await self._pin_again(new.models[name])
        done = CatalogDone(change.added, change.removed, change.revised, tuple(replaced), rolled_back)
        self._last_change = done
        log.info("the catalogue has changed: %s", done)
        return done

    async def _tell(self, change: CatalogChange, who: str) -> None:
        """What took effect at once is in the audit of each model too."""
        told = {"add": change.added, "remove": change.removed, "revise": change.revised}
        for action, names in told.items():
            for name in names:
                await self.audit.note(Deed(action, name, name, who, CHANGED), checkpoint)

    async def _read(self) -> Catalog:
        directories, families = self._units.catalog.directories, self._units.catalog.families
        if not directories:
            raise CatalogRejected("This catalogue was made without files; there is nothing to read again.")
        try:
            read = await self._opening(partial(catalogues.load, directories, families))
        except CatalogError as error:
            self._complaints = tuple(error.complaints)
            text = f"Nothing was changed. {len(error.complaints)} complaints: {error}"
            raise CatalogRejected(text, complaints=error.complaints) from None
        self._complaints = ()
        return on_devices(read, self._kinds)

    async def _pin_again(self, spec: ModelSpec) -> None:
        """An entry that was gone is there again, and so are its pins."""
        for unit in units_of(spec):
            if wish := self.pins.get(unit):
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
