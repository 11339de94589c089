"""`POST /v1/responses`: the answer to a question or a conversation, as text."""

from __future__ import annotations

from aiohttp import web

from engine.requests import Task
from web import sending
from web.api import calls
from web.api.openai import writing
from web.keys import ENGINE, INTAKE, REQUEST_ID
from web.wire.openai import responses as wire
from web.wire.openai import responses_answers


async def responses(request: web.Request) -> web.StreamResponse:
    asked = await request.app[INTAKE].asked(request, wire.read)
    assert isinstance(asked, wire.Responding)
    spec, made = await calls.of(request, Task.GENERATE, asked.model, asked)
    created = writing.created()
    if asked.stream:
        transcript = responses_answers.Transcript(asked, spec.id, request[REQUEST_ID], created)
        return await writing.streamed(request, made, transcript)
    response = await request.app[ENGINE].submit(made)
    answer = sending.small(responses_answers.whole(asked, response, request[REQUEST_ID], created))
    answer.headers.update(calls.headers(response))
    return answer
