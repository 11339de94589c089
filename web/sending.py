"""Answers go out here. A reader that stalls is cut by its connection: nothing is held for it for ever."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import anyio
from aiohttp import web

from web.keys import ENGINE
from web.wire import forms, pieces
from web.wire.forms import Form
from web.wire.pieces import Answer


async def write(response: web.StreamResponse, data: bytes) -> bool:
    """Whether it went out. When it did not, the connection is gone and the response is over."""
    try:
        await response.write(data)
    except ConnectionError:
        return False
    return True


async def answer(
    request: web.Request, said: Answer, model: str, headers: Mapping[str, str]
) -> web.StreamResponse:
    """The answer of `model` in the form that was asked for."""
    form = forms.of_answer(request.headers.get("Accept"))
    return await pieced(request, pieces.of(said, form), form, model, headers)


async def pieced(
    request: web.Request, parts: Iterable[bytes], form: Form, model: str, headers: Mapping[str, str]
) -> web.StreamResponse:
    """An answer of `model` that comes in slices. All of it is made before any of it is sent.

    So whatever cannot be written still ends as a typed error.
    """
    engine = request.app[ENGINE]
    began = engine.now()
    made: list[bytes] = []
    for piece in parts:
        if made:
            await anyio.lowlevel.checkpoint()  # others may run between two slices
        made.append(piece)
    took = engine.now() - began
    engine.encoded(model, took)
    headers = {**headers, "X-Postprocessing-Time": f"{took * 1000:.3f}"}
    if len(made) == 1:
        return web.Response(body=made[0], content_type=form, headers=headers)
    response = web.StreamResponse(headers=headers)
    response.content_type = form
    response.content_length = sum(map(len, made))
    await response.prepare(request)
    for piece in made:
        if not await write(response, piece):
            break
    return response


def small(value: Mapping[str, object], *, status: int = 200, form: Form = Form.JSON) -> web.Response:
    """A map of a few fields, at once."""
    return web.Response(body=pieces.whole(value, form), status=status, content_type=form)
