"""The catalogue of a running server: its files read again, entries added and removed, all of it audited."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import fields
from functools import partial
from pathlib import Path

from anyio.lowlevel import checkpoint

from engine import catalog as catalogues
from engine import own_entries
from engine.adjustments import Adjustments
from engine.audit import Audit, Deed
from engine.catalog import Catalog, CatalogError, ModelSpec
from engine.catalog_changes import CatalogChange, compare, meanwhile
from engine.changeover import Changeover
from engine.errors import CatalogRejected, EngineError, UnknownModel
from engine.offload import Offload
from engine.orders import CATALOGUE, CatalogDone, Previewed
from engine.own_entries import OwnEntry
from engine.units import Units, on_devices, parted
from engine.view import CatalogView

log = logging.getLogger(__name__)

CHANGED = "its entry in the catalogue's files"
LOST_PIN = "its entry has the adapter no more; it is pinned again when that is there again"


class Cataloguing:
    """The only one who reads the files while serving. Callers have begun the deed."""

    def __init__(
        self,
        *,
        units: Units,
        kinds: Iterable[str],
        audit: Audit,
        changeover: Changeover,
        adjustments: Adjustments,
        opening: Offload,
        own: Path,
        come_again: Callable[[ModelSpec], Awaitable[None]],
    ) -> None:
        """`own` is where entries are that were added here; `come_again` sees to what waits for an entry."""
        self._units = units
        self._kinds = frozenset(kinds)
        self._audit = audit
        self._changeover = changeover
        self._adjustments = adjustments
        self._opening = opening
        self._own = own
        self._come_again = come_again
        self._complaints: tuple[str, ...] = ()
        self._last_change: CatalogDone | None = None

    def view(self) -> CatalogView:
        """What is served, and how its files are."""
        catalog = self._units.catalog
        return CatalogView(
            directories=tuple(map(str, catalog.directories)),
            models=len(catalog),
            version=self._audit.version(CATALOGUE),
            complaints=self._complaints,
            last_change=self._last_change,
        )

    async def reload(self, deed: Deed) -> CatalogDone:
        async with self._changeover.lock:
            return await self._audit.of(deed, lambda: self._apply(deed.who))

    async def preview(self, entry: OwnEntry) -> Previewed:
        """What would change with the entry. Raises InvalidInput, CatalogRejected."""
        entries = self._adjustments.entries
        self._need_files(entries)
        new = await self._opening(partial(own_entries.check, entries, self._own, entry))
        fresh = on_devices(new, self._kinds)
        return Previewed(
            spec=fresh.models[entry.spec.id],
            before=entries.models.get(entry.spec.id),
            change=compare(entries, fresh),
            path=str(own_entries.place(self._own, entry.spec.id)),
        )

    async def add(self, entry: OwnEntry, deed: Deed) -> CatalogDone:
        """Serve the entry from now on, and keep it. Raises InvalidInput, CatalogRejected."""
        async with self._changeover.lock:
            return await self._audit.of(deed, lambda: self._add(entry, deed.who))

    async def remove(self, model: str, deed: Deed) -> CatalogDone:
        """Raises UnknownModel, InvalidInput for one that was not added here, CatalogRejected."""
        async with self._changeover.lock:
            return await self._audit.of(deed, lambda: self._remove(model, deed.who))

    async def added(self) -> frozenset[str]:
        """The models whose entries were added here."""
        models = tuple(self._adjustments.entries.models)
        return await self._opening(partial(own_entries.all_ours, self._own, models))

    async def _add(self, entry: OwnEntry, who: str) -> CatalogDone:
        entries = self._adjustments.entries
        self._need_files(entries)
        await self._opening(partial(own_entries.check, entries, self._own, entry))
        before = await self._opening(partial(own_entries.write, self._own, entry))
        return await self._read_or_undo(entry.spec.id, before, who)

    async def _remove(self, model: str, who: str) -> CatalogDone:
        entries = self._adjustments.entries
        if model not in entries.models:
            raise UnknownModel(f"The catalogue has no model {model[:200]!r}.")
        await self._opening(partial(own_entries.check_without, entries, self._own, model))
        path = own_entries.place(self._own, model)
        before = await self._opening(path.read_bytes)
        await self._opening(path.unlink)
        return await self._read_or_undo(model, before, who)

    async def _read_or_undo(self, model: str, before: bytes | None, who: str) -> CatalogDone:
        """Another file may have broken between the check and now."""
        try:
            return await self._apply(who)
        except CatalogRejected:
            await self._opening(partial(own_entries.put_back, self._own, model, before))
            raise

    async def _apply(self, who: str) -> CatalogDone:
        entries, old = await self._read(), self._units.catalog
        new = self._adjustments.over(entries)
        change, astray = compare(old, new), self._changeover.astray()
        self._changeover.serve(meanwhile(old, new, change.replaced))
        replaced, rolled_back = [], {}
        for name in change.replaced:
            deed = Deed("replace", name, name, who, CHANGED)
            try:
                await self._audit.note(deed, partial(self._changeover.replace, new.models[name]))
                replaced.append(name)
            except EngineError as error:
                log.error("%s is served as before, its new version failed: %s", name, error)
                rolled_back[name] = error.message
        self._adjustments.entries = meanwhile(self._adjustments.entries, entries, rolled_back)
        await self._tell(change, who)
        await self._tell_astray(self._changeover.astray() - astray, who)
        for name in change.added:
            await self._come_again(new.models[name])
        done = CatalogDone(change.added, change.removed, change.revised, tuple(replaced), rolled_back)
        self._last_change = done
        log.info("the catalogue has changed: %s", _said(done))
        return done

    async def _tell(self, change: CatalogChange, who: str) -> None:
        """What took effect at once is in the audit of each model too."""
        told = {"add": change.added, "remove": change.removed, "revise": change.revised}
        for action, names in told.items():
            for name in names:
                await self._audit.note(Deed(action, name, name, who, CHANGED), checkpoint)

    async def _tell_astray(self, units: Iterable[str], who: str) -> None:
        """Pins of adapters that have left the catalogue: of models, their removal is told."""
        for unit in sorted(units):
            model = self._units.catalog.resolve(parted(unit)[0])[0].id
            log.warning("%s is pinned and has left the catalogue: its pin holds when it is there again", unit)
            await self._audit.note(Deed("lose-pin", unit, model, who, LOST_PIN), checkpoint)

    async def _read(self) -> Catalog:
        known = self._units.catalog
        self._need_files(known)
        directories = own_entries.together(known.directories, self._own)
        try:
            read = await self._opening(partial(catalogues.load, directories, known.families))
        except CatalogError as error:
            self._complaints = tuple(error.complaints)
            text = f"Nothing was changed. {len(error.complaints)} complaints: {error}"
            raise CatalogRejected(text, complaints=error.complaints) from None
        self._complaints = ()
        return on_devices(read, self._kinds)

    @staticmethod
    def _need_files(catalog: Catalog) -> None:
        if not catalog.directories:
            raise CatalogRejected("This catalogue was made without files; there is nothing to read again.")


def _said(done: CatalogDone) -> str:
    """`2 added (a, b), 1 rolled back (c)`."""
    names = {field.name.replace("_", " "): [*getattr(done, field.name)] for field in fields(done)}
    told = [f"{len(ids)} {what} ({', '.join(ids)})" for what, ids in names.items() if ids]
    return ", ".join(told) or "nothing that is served is another"
