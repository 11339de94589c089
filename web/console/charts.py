"""`/console/series`: what the rings hold of one thing, for its charts."""

from __future__ import annotations

from aiohttp import web

from engine.errors import InvalidInput
from web import sending
from web.console.hub import HUB

MOST_NAME = 300


async def series(request: web.Request) -> web.Response:
    """`of`: `server`, `model:ID` or `device:NAME`; `span`: `10m` by the second, or `24h` by the minute."""
    hub, query = request.app[HUB], request.query
    name, long = query.get("of", "")[:MOST_NAME], query.get("span", "10m")
    if long not in ("10m", "24h"):
        raise InvalidInput("span is 10m or 24h.")
    await hub.look()
    since = hub.sampler.looked - (600 if long == "10m" else 86400)
    return sending.small({"series": name, "columns": hub.sampler.columns(name, long == "10m", since)})
