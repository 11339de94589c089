"""`/console/models/{model}`: what one model does, where it is, what it was told, what went wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from aiohttp import web

from engine.catalog import ModelSpec
from engine.closely import UnitView
from engine.errors import EngineError
from engine.journal import model_of
from engine.units import units_of
from engine.wishes import Audited
from web.console import pages, timeline
from web.console.hub import HUB, Hub, row_of
from web.errors import NotFound
from web.keys import ENGINE

TIMELINE = 3600.0
SHOWN = 30


@dataclass(frozen=True, slots=True)
class Told:
    """One key of the entry as it counts now, and whence it is."""

    name: str
    value: str
    origin: str


async def show(request: web.Request) -> web.Response:
    """Raises UnknownModel."""
    hub = request.app[HUB]
    spec, _ = request.app[ENGINE].catalog.resolve(request.match_info["model"])
    await hub.look()
    row = row_of(hub, spec.id)
    if row is None:
        raise NotFound(f"{spec.id} has only just come; try again.")
    context = {
        "row": row,
        "spec": spec,
        "name": f"model:{spec.id}",
        "residencies": next(m.residencies for m in hub.view.models if m.id == spec.id),
        "units": _units(hub, spec),
        "lines": _lines(hub, spec.id),
        "changes": _changes(hub, spec.id),
        "failures": _failures(hub, spec.id),
        "told": list(effective(spec)),
        "acts": await _acts(hub, spec.id),
        "wall": hub.wall,
    }
    name = f"model:{spec.id}"
    return await pages.page(request, "model", context, cues=(name,), series=(name,), rows=True, at="overview")


def effective(spec: ModelSpec) -> Iterator[Told]:
    """What is in force, key by key; what only says where weights come from is told apart."""
    for name in type(spec).model_fields:
        value = getattr(spec, name)
        if name in ("id", "sources", "profiles", "notes", "description") or value in (None, (), {}, ""):
            continue
        origin = "catalogue" if name in spec.model_fields_set else "default"
        yield Told(name, _written(value), origin)
    for profile, chosen in spec.profiles.items():
        for name in sorted(chosen.model_fields_set):
            yield Told(name, _written(getattr(chosen, name)), f"profile {profile}")


def _written(value: object) -> str:
    if hasattr(value, "model_dump"):
        value = value.model_dump(exclude_none=True)
    if isinstance(value, dict):
        return ", ".join(f"{key} {_written(each)}" for key, each in value.items()) or "–"
    if isinstance(value, tuple | list):
        return ", ".join(_written(each) for each in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _units(hub: Hub, spec: ModelSpec) -> list[UnitView]:
    """Without those of an entry that is on its way in or out."""
    found = []
    for unit in units_of(spec):
        try:
            found.append(hub.engine.closely.unit(unit))
        except EngineError:
            continue
    return found


def _lines(hub: Hub, model: str) -> tuple[timeline.Line, ...]:
    changes = [c for c in hub.engine.closely.journal.changes if model_of(c.unit) == model]
    seen = next(m for m in hub.view.models if m.id == model)
    here = [r.device for r in seen.residencies if r.state in ("ready", "leaving")]
    return timeline.lines(changes, here, hub.engine.now(), TIMELINE)


def _changes(hub: Hub, model: str) -> list[object]:
    found = [c for c in reversed(hub.engine.closely.journal.changes) if model_of(c.unit) == model]
    return [*found[:SHOWN]]


def _failures(hub: Hub, model: str) -> list[object]:
    found = [done for done in reversed(hub.engine.closely.journal.failed) if done.model == model]
    return [*found[:SHOWN]]


async def _acts(hub: Hub, model: str) -> list[Audited]:
    try:
        return await hub.engine.operators.history(SHOWN, model)
    except EngineError:
        return []
