"""`POST /v1/encode/{model}`: items to vectors."""

from __future__ import annotations

from aiohttp import web

from engine.requests import EncodeOptions, Task
from web import sending
from web.api import calls
from web.keys import ENGINE
from web.wire import answers, bodies


async def encode(request: web.Request) -> web.StreamResponse:
    spec, made, asked = await calls.call(request, Task.ENCODE, bodies.encode)
    assert isinstance(asked.options, EncodeOptions)
    response = await request.app[ENGINE].submit(made)
    said = answers.encoded(spec, made.items, asked.options.output_dtype, response)
    return await sending.answer(request, said, response.model, calls.headers(response))
