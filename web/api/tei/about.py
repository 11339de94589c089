"""What the model is, whether it can be asked, and whatever it is there for."""

from __future__ import annotations

from aiohttp import web

import engine as product
from engine.errors import Stopped
from engine.requests import Task
from web import sending
from web.api import calls, naming
from web.api.tei import embed, rank, which
from web.keys import ENGINE
from web.wire.tei import answers

ANY = ("tei_embed", "tei_rerank", "tei_predict")


async def info(request: web.Request) -> web.Response:
    engine = request.app[ENGINE]
    spec = naming.entry(engine.catalog, which.model(request, *ANY))
    settings = engine.settings
    said = answers.info(spec, settings.max_items, settings.max_waiting_jobs, product.__version__)
    return sending.small(said)


async def health(request: web.Request) -> web.Response:
    """Nothing, when the model is known and new requests are taken. It need not be loaded."""
    engine = request.app[ENGINE]
    naming.entry(engine.catalog, request.match_info["model"])
    if not engine.accepting:
        raise Stopped
    return web.Response()


async def any_task(request: web.Request) -> web.StreamResponse:
    """As TEI's own root does: whatever the model is there for."""
    spec = await calls.known(request, request.match_info["model"])
    if Task.ENCODE in spec.tasks:
        return await embed.embed(request)
    return await (rank.rerank(request) if Task.SCORE in spec.tasks else rank.predict(request))
