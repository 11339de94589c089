"""`/console/settings`: every setting as it is in force, where it came from, and the catalogue's files."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from aiohttp import web

from engine.config import Settings
from engine.declarations import Declaration, declarations
from engine.quantities import as_duration, as_size
from web.console import pages
from web.console.hub import HUB
from web.keys import ENGINE

MASKED = "••••••"

Line = tuple[Declaration, str, str, bool]
"""The setting, its value, where it came from, and whether somebody has set it."""


async def show(request: web.Request) -> web.Response:
    hub = request.app[HUB]
    await hub.look()
    lines = list(effective(request.app[ENGINE].settings))
    sections = [(name, list(found)) for name, found in groupby(lines, lambda line: line[0].section)]
    context = {"sections": sections, "catalog": hub.view.catalog}
    return await pages.page(request, "settings", context)


def effective(settings: Settings) -> Iterator[Line]:
    for declared in declarations():
        origin = settings.origin(declared.name)
        value = getattr(settings, declared.name)
        yield declared, _written(value, declared), str(origin), origin.kind != "default"


def _written(value: object, declared: Declaration) -> str:
    if value is None or value == ():
        return "–"
    if declared.secret:
        return MASKED
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if declared.unit == "bytes" and isinstance(value, int):
        return as_size(value)
    if declared.unit == "duration" and isinstance(value, int | float):
        return as_duration(float(value))
    return str(value)
