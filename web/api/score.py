"""`POST /v1/score/{model}`: passages in the order of their worth for a query."""

from __future__ import annotations

from aiohttp import web

from engine.requests import ScoreOptions, Task
from web import sending
from web.api import calls
from web.keys import ENGINE
from web.wire import answers, bodies


async def score(request: web.Request) -> web.StreamResponse:
    _, made, asked = await calls.call(request, Task.SCORE, bodies.score)
    assert isinstance(asked.options, ScoreOptions)
    response = await request.app[ENGINE].submit(made)
    said = answers.scored(made.items, asked.options.query.id, response)
    headers = calls.headers(response, Pairs=len(made.items))
    return await sending.answer(request, said, response.model, headers)
