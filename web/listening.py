"""Where the server listens: a loopback address only, and so many connections at most."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from collections.abc import Callable

from aiohttp import web

from engine.config import Settings, SettingsError

BACKLOG = 1024

_FULL_BODY = b'{"detail":{"code":"QUEUE_FULL","message":"Too many connections are open; try again later."}}'
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n"
    b"X-SIE-Error-Code: QUEUE_FULL\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
) % (len(_FULL_BODY), _FULL_BODY)


def bind(settings: Settings) -> socket.socket:
    """A socket that listens where the settings say, before anything slow is begun.

    Raises SettingsError for an address that is not loopback: there are no keys, so whoever reaches
    the port may use the server. Also when the name means nothing or the port is taken.
    """
    host, port = settings.host, settings.port
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise _wrong(settings, "host", f"{host!r}: {error.strerror}") from None
    if not ipaddress.ip_address(address[0]).is_loopback:
        raise _wrong(
            settings,
            "host",
            f"{host} is no loopback address. This server has no keys, so anyone who can reach it may use it; "
            "listen on 127.0.0.1 and put a proxy that checks who calls in front",
        )
    try:
        return socket.create_server((address[0], port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise _wrong(settings, "port", f"{host}:{port}: {os.strerror(error.errno or 0)}") from None


def url(listener: socket.socket, settings: Settings) -> str:
    """What a browser on this machine opens."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{settings.base_path}/"


def at_most(limit: int, runner: web.AppRunner) -> Callable[[], asyncio.BaseProtocol]:
    """What answers a new connection: the runner's server, or a short refusal when `limit` are open."""

    def connected() -> asyncio.BaseProtocol:
        assert runner.server is not None
        return _Full() if len(runner.server.connections) >= limit else runner.server()

    return connected


class _Full(asyncio.Protocol):
    """Says that there is no room, and hangs up."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(_FULL)
        transport.close()


def _wrong(settings: Settings, key: str, said: str) -> SettingsError:
    return SettingsError([f"{settings.origin(key)}: {key}: {said}"])
