"""The console's routes, what each needs of its caller, and what the application has to keep for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp_jinja2
from aiohttp import web

from web.console import (
    actions,
    bulk,
    charts,
    devices,
    entries,
    history,
    live,
    model,
    pages,
    people,
    plans,
    playground,
    queues,
    recordings,
    replays,
    settings,
    tail,
    traffic,
)
from web.console.errands import ERRANDS, Errands
from web.console.hub import HUB, Hub
from web.console.recordings import SUMMARIES, Summaries
from web.keys import ENGINE, WEIGHTS

ROUTES = (
    web.get("/console/live", live.stream),
    web.get("/console/series", charts.series),
    web.get("/console/queues", queues.show),
    web.get("/console/devices", devices.show),
    web.get("/console/requests", traffic.show),
    web.get("/console/requests/{request}", traffic.one),
    web.get("/console/playground", playground.show),
    web.get("/console/recordings", recordings.show),
    web.post("/console/recordings", recordings.act),
    web.post("/console/recordings/import", recordings.take_in),
    web.get("/console/recordings/{recording}", recordings.one),
    web.get("/console/replays", replays.PAGES.show),
    web.post("/console/replays", replays.PAGES.act),
    web.get("/console/replays/{replay}", replays.one),
    web.post("/console/replays/{replay}/stop", replays.PAGES.stop),
    web.get("/console/replays/{replay}/report.{form}", replays.file),
    web.get("/console/plans", plans.PAGES.show),
    web.post("/console/plans", plans.PAGES.act),
    web.get("/console/plans/compare", plans.compare),
    web.get("/console/plans/{plan}", plans.one),
    web.post("/console/plans/{plan}/stop", plans.PAGES.stop),
    web.get("/console/plans/{plan}/plan.json", plans.file),
    web.get("/console/audit", history.show),
    web.get("/console/settings", settings.show),
    web.get("/console/people", people.show),
    web.post("/console/people", people.act),
    web.get("/console/entries", entries.show),
    web.post("/console/entries", entries.act),
    web.post("/console/bulk", bulk.do),
    web.get("/console/act", actions.sheet),
    web.post("/console/do", actions.do),
    web.get("/console/models/{model:.+}", model.show),
)


def begin(app: web.Application) -> None:
    """What the pages need, once they can be rendered."""
    app[HUB] = Hub(app[ENGINE], app[WEIGHTS])
    app[ERRANDS] = Errands(app[ENGINE].settings.state_dir)
    app[SUMMARIES] = Summaries()
    aiohttp_jinja2.get_env(app).filters.update(pages.FILTERS)
    app.cleanup_ctx.append(_watched)
    app.on_shutdown.append(_close)
    app.on_response_prepare.append(_kept)


async def _watched(app: web.Application) -> AsyncIterator[None]:
    task = asyncio.create_task(app[HUB].run())
    tail.listen(app[HUB].tail)
    yield
    tail.stop(app[HUB].tail)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def _kept(request: web.Request, response: web.StreamResponse) -> None:
    """Files are asked about again, and sent again only when they have changed."""
    if isinstance(response, web.FileResponse):
        response.headers["Cache-Control"] = "no-cache"


async def _close(app: web.Application) -> None:
    app[HUB].stop()
    await app[ERRANDS].close()
