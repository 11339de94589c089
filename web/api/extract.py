"""`POST /v1/extract/{model}`: what is in each item: entities, labels, boxes, fields, Markdown."""

from __future__ import annotations

from aiohttp import web

from engine.requests import Task
from web import sending
from web.api import calls
from web.keys import ENGINE
from web.wire import answers, bodies


async def extract(request: web.Request) -> web.StreamResponse:
    _, made, _ = await calls.call(request, Task.EXTRACT, bodies.extract)
    response = await request.app[ENGINE].submit(made)
    said = answers.extracted(made.items, response)
    return await sending.answer(request, said, response.model, calls.headers(response))
