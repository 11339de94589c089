"""What is refused before it is a request of ours, in the same words and form as all that is refused later.

The HTTP library answers by itself what it cannot parse, and expectations that it does not know. Those
answers pass no middleware.
"""

from __future__ import annotations

import secrets
import sys
from http import HTTPStatus
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.web_protocol import RequestHandler

from engine.errors import EngineError, InvalidInput
from web import errors
from web.keys import REQUEST_ID
from web.wire import pieces
from web.wire.forms import Form


class Connection(RequestHandler):
    """One client's connection."""

    __slots__ = ()

    def log_exception(self, *args: Any, **named: Any) -> None:
        """A traceback is for mistakes of ours: what a client got wrong is answered, and that is all."""
        error = named.get("exc_info") or sys.exc_info()[1]
        if isinstance(error, web.RequestPayloadError | HttpProcessingError):
            self.log_debug("A client's request is broken: %s", type(error).__name__)
            return
        super().log_exception(*args, **named)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Logs it, and closes the connection after the answer, as the library does."""
        super().handle_error(request, status, exc, message)
        response = _refusal(_complaint(status, exc, message), secrets.token_hex(12))
        response.force_close()
        return response

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        if isinstance(resp, web.HTTPException) and isinstance(request, web.Request) and resp.status >= 400:
            name = request[REQUEST_ID] = request.get(REQUEST_ID) or secrets.token_hex(12)
            resp = _refusal(errors.of_http(resp, request), name)
            resp.force_close()
        return await super().finish_response(request, resp, start_time)


def typed(handler: RequestHandler) -> Connection:
    """The library makes its own kind, and has no place where to say which."""
    handler.__class__ = Connection
    assert isinstance(handler, Connection)
    return handler


def _complaint(status: int, error: BaseException | None, message: str | None) -> EngineError:
    if isinstance(error, LineTooLong):
        return InvalidInput("A line of the request's head is too long: send a shorter address or header.")
    if status < HTTPStatus.INTERNAL_SERVER_ERROR:
        lines = (message or "").strip().splitlines() or [""]
        return InvalidInput(f"This is no proper HTTP: {lines[0][:200].rstrip(':.')}.")
    return EngineError()


def _refusal(error: EngineError, name: str) -> web.Response:
    said = pieces.whole(errors.envelope(error, name), Form.JSON)
    told = {**errors.headers(error), "X-SIE-Request-ID": name, "X-Content-Type-Options": "nosniff"}
    return web.Response(
        body=said, status=errors.status(error), content_type=Form.JSON, headers={**told, "Server": "serai"}
    )
