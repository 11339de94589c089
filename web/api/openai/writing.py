"""A text on its way out: whole, or as it is written."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol, cast

from aiohttp import web

from engine.errors import EngineError, InferenceFailed
from engine.requests import Delta, Request, Response
from web import sending
from web.keys import ENGINE, REQUEST_ID
from web.wire import answers

log = logging.getLogger(__name__)
_HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
    "X-SIE-Served-By": "local",
}


class Transcript(Protocol):
    """What a stream says, as bytes."""

    def begun(self) -> bytes: ...

    def delta(self, delta: Delta) -> bytes: ...

    def done(self, response: Response) -> bytes:
        """Raises the error that the response holds."""
        ...

    def failed(self, error: EngineError) -> bytes: ...

    def ended(self) -> bytes: ...


def created() -> int:
    return int(time.time())


async def streamed(request: web.Request, made: Request, transcript: Transcript) -> web.StreamResponse:
    """What goes wrong before the first text is an HTTP error, which clients send again; later an event."""
    stream = request.app[ENGINE].stream(made)
    async with aclosing(cast(AsyncGenerator[Delta, None], stream)) as deltas:
        first = await anext(deltas, None)
        if first is None:
            raise InferenceFailed("The model wrote nothing and did not say that it was done.")
        if first.done:
            answers.generation(first.done)  # raises what went wrong, while it can still be a status
        response = web.StreamResponse(headers=_HEADERS)
        await response.prepare(request)
        async with aclosing(_said(request, first, deltas, transcript)) as said:
            async for piece in said:
                if piece and not await sending.write(response, piece):
                    break
    return response


async def _said(
    request: web.Request, first: Delta, rest: AsyncGenerator[Delta, None], transcript: Transcript
) -> AsyncGenerator[bytes, None]:
    """The whole transcript. It ends with what was done or an error, whatever happens."""
    try:
        yield transcript.begun()
        delta: Delta | None = first
        while delta is not None:
            yield transcript.delta(delta)
            if delta.done:
                yield transcript.done(delta.done)
                break
            delta = await anext(rest, None)
        else:
            yield transcript.failed(InferenceFailed("The model stopped before it was done."))
    except EngineError as error:
        yield transcript.failed(error)
    except Exception:
        log.exception("%s failed while it was streamed", request[REQUEST_ID])
        yield transcript.failed(EngineError())
    yield transcript.ended()
