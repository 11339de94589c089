"""`/v1/models`: what there is and how it is, and what an operator may ask of a model."""

from __future__ import annotations

from aiohttp import web

from web import sending
from web.api import admin
from web.keys import ENGINE
from web.wire import status
from web.wire.openai import listing


async def list_models(request: web.Request) -> web.Response:
    engine = request.app[ENGINE]
    ours = status.models(engine.catalog, engine.view())
    return sending.small({"models": ours, **listing.all_of(engine.catalog)})


async def show(request: web.Request) -> web.Response:
    """Raises UnknownModel."""
    info = admin.info(request)
    return sending.small({**info, **listing.one(request.match_info["model"], str(info["name"]))})


act = admin.act
