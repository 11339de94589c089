"""One connection: what is refused before it is a request of ours, in the words and form of all refusals, and
how long a client may take over a request's head or over its answer.

The HTTP library answers by itself what it cannot parse, and expectations that it does not know. Those
answers pass no middleware. It waits for an hour for whoever begins a request, and for ever for a reader.
"""

from __future__ import annotations

import asyncio
import fcntl
import secrets
import struct
import sys
import termios
from http import HTTPStatus
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.web_protocol import RequestHandler

from engine.errors import DeadlineExceeded, EngineError, InvalidInput
from web import errors
from web.keys import REQUEST_ID
from web.wire import pieces
from web.wire.forms import Form

IDLE = 120.0
"""Seconds that a connection stays open between two requests."""
HEAD = 30.0
"""Seconds from a request's first byte, or from the connection's begin, until its head is whole."""
STALL = 30.0
"""Seconds in which a reader must take at least `LEAST` bytes of what waits for it."""
LEAST = 2**14


class Connection(RequestHandler):
    """One client's."""

    __slots__ = ("_begun", "_head", "_left", "_reading")

    def __init__(self, server: web.Server) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), access_log=None, keepalive_timeout=IDLE)  # type: ignore[arg-type]
        self._head: asyncio.TimerHandle | None = None
        """Set while a head must come."""
        self._begun = False
        """Whether some of one has come."""
        self._reading: asyncio.TimerHandle | None = None
        """Set since the reader fell behind."""
        self._left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(high=0)  # the end of an answer, too, waits for its reader
        self._head = self._loop.call_later(HEAD, self._give_up)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        for timer in (self._head, self._reading):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        idle = self._waiter is not None and not self._waiter.done()
        self._begun = not self._messages and (idle or not self._request_count)
        if self._begun and self._head is None:
            self._head = self._loop.call_later(HEAD, self._give_up)
            self._next_keepalive_close_time = self._head.when() + 1  # it is no idle one any more
        elif not self._begun and self._head is not None:
            self._head.cancel()
            self._head = None

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._reading is None:
            self._look_again()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._left = sys.maxsize  # it took enough

    def force_close(self) -> None:
        """At once, though something waits to be read: a transport that is closed waits for that for ever."""
        transport = self.transport
        super().force_close()
        if transport is not None and transport.get_write_buffer_size():
            transport.abort()

    def _look_again(self) -> None:
        assert self.transport is not None
        self._left = unread(self.transport)
        self._reading = self._loop.call_later(STALL, self._look)

    def _look(self) -> None:
        self._reading = None
        if self.transport is None or not self.writing_paused:
            return
        if self._left - unread(self.transport) < LEAST:
            self.transport.abort()
            return
        self._look_again()

    def _give_up(self) -> None:
        """Without a word where nothing was asked: browsers connect ahead, and wonder about an answer."""
        self._head = None
        if self._begun and self.transport is not None:
            said = f"The head of a request did not arrive within {HEAD:g} s."
            self.transport.write(bare(DeadlineExceeded(said)))
        self.force_close()

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


def unread(transport: asyncio.Transport) -> int:
    """Bytes that the client's machine has not taken. The system holds some millions of them, and makes room
    for more when a third of those are gone: what waits here may not change for a minute and more."""
    held = 0
    if (link := transport.get_extra_info("socket")) is not None:
        (held,) = struct.unpack("i", fcntl.ioctl(link.fileno(), termios.TIOCOUTQ, bytes(4)))
    return transport.get_write_buffer_size() + held


def _complaint(status: int, error: BaseException | None, message: str | None) -> EngineError:
    if isinstance(error, LineTooLong):
        return InvalidInput("A line of the request's head is too long: send a shorter address or header.")
    if status < HTTPStatus.INTERNAL_SERVER_ERROR:
        lines = (message or "").strip().splitlines() or [""]
        return InvalidInput(f"This is no proper HTTP: {lines[0][:200].rstrip(':.')}.")
    return EngineError()


def _refusal(error: EngineError, name: str) -> web.Response:
    body, headers = _said(error, name)
    return web.Response(body=body, status=errors.status(error), content_type=Form.JSON, headers=headers)


def _said(error: EngineError, name: str) -> tuple[bytes, dict[str, str]]:
    told = {"X-SIE-Request-ID": name, "X-Content-Type-Options": "nosniff", "Server": "serai"}
    return pieces.whole(errors.envelope(error, name), Form.JSON), {**errors.headers(error), **told}


def bare(error: EngineError) -> bytes:
    """An error as the last bytes of a connection on which nothing was asked yet."""
    body, headers = _said(error, secrets.token_hex(12))
    status = HTTPStatus(errors.status(error))
    headers |= {"Connection": "close", "Content-Type": Form.JSON, "Content-Length": str(len(body))}
    lines = [f"HTTP/1.1 {status} {status.phrase}", *(f"{name}: {said}" for name, said in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body
