"""`/v1/batches`: calls that stand in a file, one a line, run when there is room."""

from __future__ import annotations

from aiohttp import web

from engine.batches.kept import Batch
from engine.batches.shelf import DAY
from web import sending
from web.api import calls
from web.api.openai.files import asker
from web.keys import ENGINE, INTAKE
from web.wire import endpoints
from web.wire.decoding import decode
from web.wire.forms import Form
from web.wire.openai import batches as wire
from web.wire.openai import files as listing

USUAL, MOST = 20, 100
"""Batches on one page."""


async def create(request: web.Request) -> web.Response:
    """It is checked and run from now on."""
    engine, who = request.app[ENGINE], asker(request)
    asked = decode(await request.app[INTAKE].body(request), Form.JSON, wire.BatchBody)
    _, model, _ = endpoints.of(asked.endpoint)
    if model:
        spec = await calls.known(request, model)
        engine.access.check_model(who, spec.id)
    batch = await engine.batches.create(
        who,
        endpoint=asked.endpoint,
        input_file_id=asked.input_file_id,
        window=asked.completion_window,
        seconds=wire.window(asked.completion_window, engine.settings.file_days * DAY),
        metadata=wire.metadata(asked.metadata),
        output_seconds=listing.lasting(
            asked.output_expires_after, engine.settings.file_days, "output_expires_after"
        ),
    )
    return _answer(request, batch)


async def list_batches(request: web.Request) -> web.Response:
    """The newest first."""
    batches = request.app[ENGINE].batches
    rows, more = listing.page(batches.shelf.batches(asker(request)), request.query, USUAL, MOST)
    told = [wire.told(batch, batches.counts(batch), batches.spent(batch)) for batch in rows]
    return sending.small(listing.listed(told, more))


async def show(request: web.Request) -> web.Response:
    """One of them, as it is now."""
    batches = request.app[ENGINE].batches
    return _answer(request, batches.shelf.batch(asker(request), request.match_info["batch"]))


async def cancel(request: web.Request) -> web.Response:
    """Nothing new of it is begun; what was answered stays."""
    batches = request.app[ENGINE].batches
    batch = batches.shelf.batch(asker(request), request.match_info["batch"])
    return _answer(request, await batches.cancel(batch.id))


def _answer(request: web.Request, batch: Batch) -> web.Response:
    batches = request.app[ENGINE].batches
    return sending.small(wire.told(batch, batches.counts(batch), batches.spent(batch)))
