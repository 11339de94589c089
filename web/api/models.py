"""`/v1/models`: what there is and how it is, and what an operator may ask of a model."""

from __future__ import annotations

from aiohttp import web

from web import sending
from web.api import admin
from web.keys import ENGINE, WEIGHTS
from web.wire import status
from web.wire.openai import listing


async def list_models(request: web.Request) -> web.Response:
    engine = request.app[ENGINE]
    weights = await request.app[WEIGHTS].told()
    seen = status.models(engine.catalog, engine.view())
    ours = [{**model, "weights": weights.get(model["name"])} for model in seen]
    return sending.small({"models": ours, **listing.all_of(engine.catalog)})


async def show(request: web.Request) -> web.Response:
    """Raises UnknownModel."""
    info = admin.info(request)
    name = str(info["name"])
    weights = (await request.app[WEIGHTS].told()).get(name)
    return sending.small({**info, "weights": weights, **listing.one(request.match_info["model"], name)})


act = admin.act
