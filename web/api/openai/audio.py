"""`POST /v1/audio/transcriptions` and `/v1/audio/translations`: a recording in a form, and its text."""

from __future__ import annotations

from aiohttp import web

from engine.errors import InvalidInput
from engine.requests import Task
from web.api import calls
from web.keys import ENGINE
from web.multipart import Parts
from web.wire.openai import audio as wire

LARGEST = 25 * 2**20
"""Bytes of one recording, as OpenAI's service has it."""
LONGEST_FIELD = 2**16


async def transcriptions(request: web.Request) -> web.Response:
    """What is said, in the language in which it is said."""
    return await _written(request, "transcribe")


async def translations(request: web.Request) -> web.Response:
    """What is said, in English."""
    return await _written(request, "translate")


async def _written(request: web.Request, task: str) -> web.Response:
    fields, data, name = await _form(request)
    asked = wire.read(fields, data, name, task)
    _, made = await calls.of(request, Task.EXTRACT, asked.model, asked)
    response = await request.app[ENGINE].submit(made)
    body, kind = wire.answer(asked, response)
    charset = None if kind == "application/json" else "utf-8"
    return web.Response(body=body, content_type=kind, charset=charset, headers=calls.headers(response))


async def _form(request: web.Request) -> tuple[dict[str, list[str]], bytes, str]:
    """Its fields, the recording, and the recording's name."""
    if not request.content_type.startswith("multipart/"):
        raise InvalidInput("This route takes a form: send Content-Type: multipart/form-data.")
    most = min(LARGEST, request.app[ENGINE].settings.max_body_bytes)
    fields: dict[str, list[str]] = {}
    data: bytes | None = None
    name, parts = "", Parts(request)
    while (part := await parts.next()) is not None:
        if part.name == "file":
            name, data = part.filename, await part.whole(most)
        else:
            fields.setdefault(part.name, []).append(await part.text(LONGEST_FIELD))
    if data is None:
        raise InvalidInput("The form has no part with the name file.", param="file")
    return fields, data, name
