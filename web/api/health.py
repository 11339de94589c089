"""Probes, the gateway's `/health`, and `/metrics`."""

from __future__ import annotations

from aiohttp import web

from engine.errors import Stopped
from web import errors, sending
from web.keys import ENGINE, SNAPSHOTS


async def alive(request: web.Request) -> web.Response:
    """The event loop runs: that is all it says."""
    return web.Response(text="ok")


async def ready(request: web.Request) -> web.Response:
    """Whether new requests are taken."""
    if request.app[ENGINE].accepting:
        return web.Response(text="ok")
    error = Stopped()
    return web.Response(text="draining", status=errors.status(error), headers=errors.headers(error))


async def health(request: web.Request) -> web.Response:
    return sending.small(request.app[SNAPSHOTS].gateway(str(request.url.origin())))


async def metrics(request: web.Request) -> web.Response:
    headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
    return web.Response(body=request.app[ENGINE].metrics(), headers=headers)
