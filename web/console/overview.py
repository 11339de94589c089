"""`/`: what every device holds, what every model does, and what may be done about it."""

from __future__ import annotations

from aiohttp import web

from web.console import pages
from web.console.hub import HUB
from web.console.rows import SORTS, STATES, chosen

PER_PAGE = 100
FILTERS = (*STATES, "pinned", "paused", "busy")


async def show(request: web.Request) -> web.Response:
    hub, query = request.app[HUB], request.query
    await hub.look()
    text = query.get("q", "")[:200]
    state = query.get("state", "") if query.get("state") in FILTERS else ""
    sort = query.get("sort", "") if query.get("sort") in SORTS else "activity"
    found = chosen(hub.rows, text, state, sort)
    said = query.get("page", "1")
    last = max(1, -(-len(found) // PER_PAGE))
    number = min(last, max(1, int(said))) if said.isascii() and said.isdecimal() and len(said) < 6 else 1
    context = {
        "bars": hub.bars,
        "rows": found[(number - 1) * PER_PAGE : number * PER_PAGE],
        "found": len(found),
        "total": len(hub.rows),
        "first": (number - 1) * PER_PAGE + 1,
        "number": number,
        "last": last,
        "q": text,
        "state": state,
        "sort": sort,
        "states": FILTERS,
        "alarms": [f"{bar.name}: {bar.alarm}" for bar in hub.bars if bar.alarm],
        "complaints": hub.view.catalog.complaints,
    }
    return await pages.page(request, "overview", context, cues=("models",), series=("server",), rows=True)
