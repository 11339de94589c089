"""`POST /v1/generate/{model}`: a text, whole or as it is written."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from aiohttp import web

from engine.errors import EngineError, InferenceFailed
from engine.requests import Delta, Request, Task
from web import sending
from web.api import calls
from web.keys import ARRIVED, ENGINE, REQUEST_ID
from web.wire import answers, bodies
from web.wire.events import DONE, Transcript

log = logging.getLogger(__name__)
_STREAM_HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
    "X-SIE-Served-By": "local",
}


async def generate(request: web.Request) -> web.StreamResponse:
    _, made, asked = await calls.call(request, Task.GENERATE, bodies.generate)
    if asked.stream:
        return await _streamed(request, made)
    response = await request.app[ENGINE].submit(made)
    answer = sending.small(answers.generated(response))
    answer.headers.update(calls.headers(response))
    return answer


async def _streamed(request: web.Request, made: Request) -> web.StreamResponse:
    """What goes wrong before the first text is an HTTP error, which clients send again; later an event."""
    stream = request.app[ENGINE].stream(made)
    async with aclosing(cast(AsyncGenerator[Delta, None], stream)) as deltas:
        first = await anext(deltas, None)
        if first is None:
            raise InferenceFailed("The model wrote nothing and did not say that it was done.")
        if first.done:
            answers.generation(first.done)  # raises what went wrong, while it can still be a status
        response = web.StreamResponse(headers=_STREAM_HEADERS)
        await response.prepare(request)
        async with aclosing(_events(request, first, deltas)) as events:
            async for event in events:
                if not await sending.write(response, event):
                    break
    return response


async def _events(
    request: web.Request, first: Delta, rest: AsyncGenerator[Delta, None]
) -> AsyncGenerator[bytes, None]:
    """The whole transcript. It ends with `done` or an error, whatever happens, and then `[DONE]`."""
    now, began = request.app[ENGINE].now, request[ARRIVED]
    transcript = Transcript(request[REQUEST_ID])
    ttft: float | None = None
    try:
        delta: Delta | None = first
        while delta is not None:
            if delta.text:
                ttft = now() - began if ttft is None else ttft
                yield transcript.delta(delta.text)
            if delta.done:
                yield transcript.done(delta.done, ttft)
                break
            delta = await anext(rest, None)
        else:
            yield transcript.failed(InferenceFailed("The model stopped before it was done."))
    except EngineError as error:
        yield transcript.failed(error)
    except Exception:
        log.exception("%s failed while it was streamed", request[REQUEST_ID])
        yield transcript.failed(EngineError())
    yield DONE
