"""`/console/models/{model}`: what one model does, where it is, what it was told, what went wrong."""

from __future__ import annotations

from urllib.parse import quote

from aiohttp import hdrs, web

from engine.catalog import ModelSpec
from engine.closely import UnitView
from engine.errors import EngineError
from engine.journal import model_of
from engine.units import units_of
from engine.wishes import Audited
from web.console import inforce, pages, situations, timeline
from web.console.hub import HUB, Hub, row_of
from web.errors import NotFound
from web.keys import ENGINE

TIMELINE = 3600.0
SHOWN = 30


async def show(request: web.Request) -> web.Response:
    """Of `model:adapter` the model's page, at that adapter. Raises UnknownModel."""
    hub, catalog = request.app[HUB], request.app[ENGINE].catalog
    spec, _, adapter = catalog.named(request.match_info["model"])
    if adapter is not None:
        place = f"{pages.model_path(spec.id)}#adapter-{quote(adapter)}"
        return web.Response(
            status=303, headers={hdrs.LOCATION: request.app[ENGINE].settings.base_path + place}
        )
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
        "told": list(inforce.effective(spec, hub.engine.settings, hub.engine.operators.adjusted)),
        "parts": situations.parts(spec),
        "adapters": situations.of_model(hub, spec),
        "version": row.version,
        "log": hub.tail.of(spec.id)[:SHOWN],
        "acts": await _acts(hub, spec.id),
        "wall": hub.wall,
    }
    name = f"model:{spec.id}"
    return await pages.page(request, "model", context, cues=(name,), series=(name,), rows=True, at="overview")


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
