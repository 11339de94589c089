"""`/ws/status` and `/ws/cluster-status`: a whole snapshot now and then, to everybody the same."""

from __future__ import annotations

from collections.abc import Callable

import anyio
from aiohttp import WSCloseCode, WSMsgType, web

from engine.access.principals import Action
from web.access.current import still
from web.keys import SNAPSHOTS, SOCKETS
from web.snapshots import FRESH

HEARTBEAT = 30.0
STALL = 10.0
"""Seconds in which a viewer must take a snapshot; they are whole, so it loses nothing by coming back."""


async def worker(request: web.Request) -> web.WebSocketResponse:
    return await _send(request, request.app[SNAPSHOTS].worker)


async def cluster(request: web.Request) -> web.WebSocketResponse:
    return await _send(request, request.app[SNAPSHOTS].cluster)


async def close_all(app: web.Application) -> None:
    """Viewers would keep the server from stopping for as long as they like."""
    sockets = app[SOCKETS]
    for socket in tuple(sockets):
        await socket.close(code=WSCloseCode.GOING_AWAY, message=b"the server stops")


async def _send(request: web.Request, snapshot: Callable[[], str]) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(heartbeat=HEARTBEAT, max_msg_size=4096)
    try:
        await socket.prepare(request)  # a client may leave during the handshake
        request.app[SOCKETS].add(socket)
        while not socket.closed:
            if not still(request, Action.SEE):
                await socket.close(code=WSCloseCode.POLICY_VIOLATION, message=b"no longer allowed")
                break
            with anyio.fail_after(STALL):
                await socket.send_str(snapshot())
            await _listen(socket, FRESH)
    except (ConnectionError, TimeoutError):
        if request.transport:
            request.transport.abort()
    finally:
        request.app[SOCKETS].discard(socket)
    return socket


async def _listen(socket: web.WebSocketResponse, seconds: float) -> None:
    """Wait, and notice meanwhile that the viewer leaves. What it says is of no interest."""
    with anyio.move_on_after(seconds):
        while not socket.closed:
            message = await socket.receive()
            if message.type in (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR):
                return
