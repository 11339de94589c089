"""`POST /v1/completions`: what follows a prompt."""

from __future__ import annotations

from aiohttp import web

from engine.requests import Task
from web import sending
from web.api import calls
from web.api.openai import writing
from web.keys import ENGINE, INTAKE, REQUEST_ID
from web.wire.openai import completions as wire
from web.wire.openai.sampling import Writing


async def completions(request: web.Request) -> web.StreamResponse:
    asked = await request.app[INTAKE].asked(request, wire.read)
    assert isinstance(asked, Writing)
    spec, made = await calls.of(request, Task.GENERATE, asked.model, asked)
    created = writing.created()
    if asked.stream:
        transcript = wire.Transcript(asked, spec.id, request[REQUEST_ID], created)
        return await writing.streamed(request, made, transcript)
    response = await request.app[ENGINE].submit(made)
    answer = sending.small(wire.whole(asked, response, request[REQUEST_ID], created))
    answer.headers.update(calls.headers(response))
    return answer
