"""`POST /v1/estimate`: what a call would cost and how long it would take, without running it."""

from __future__ import annotations

from aiohttp import web

from web import sending
from web.api import calls
from web.keys import ENGINE, INTAKE
from web.wire import estimate as wire
from web.wire import forms


async def estimate(request: web.Request) -> web.Response:
    """Whatever would fail the call before it is queued fails this too, with the same error."""
    asked = await request.app[INTAKE].asked(request, wire.read)
    assert isinstance(asked, wire.Estimating)
    _, made = await calls.of(request, asked.task, asked.model, asked)
    found = await request.app[ENGINE].estimate(made)
    form = forms.of_error(request.headers.get("Accept"))  # msgpack only for those who name it
    return sending.small(wire.answer(asked.task, found), form=form)
