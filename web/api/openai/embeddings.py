"""`POST /v1/embeddings`: texts or token ids to vectors."""

from __future__ import annotations

from aiohttp import web

from engine.requests import Task
from web import sending
from web.api import calls
from web.keys import ENGINE, INTAKE
from web.wire import pieces
from web.wire.forms import Form
from web.wire.openai import embeddings as wire


async def embeddings(request: web.Request) -> web.StreamResponse:
    asked = await request.app[INTAKE].asked(request, wire.read)
    assert isinstance(asked, wire.Embedding)
    _, made = await calls.of(request, Task.ENCODE, asked.model, asked)
    response = await request.app[ENGINE].submit(made)
    said = pieces.of(wire.answer(asked, response), Form.JSON)
    return await sending.pieced(request, said, Form.JSON, response.model, calls.headers(response))
