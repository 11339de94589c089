"""Where the server listens: beyond this machine only when it asks who calls; so many connections at most."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

from aiohttp import web

from engine.access.access import is_loopback
from engine.access.rows import closed_at
from engine.config import Settings, SettingsError
from engine.errors import QueueFull
from web.connection import Connection, bare

BACKLOG = 1024


def bind(settings: Settings) -> socket.socket:
    """A socket that listens where the settings say, before anything slow is begun.

    Raises SettingsError for an address that others reach while nobody is asked who they are, and when
    the name means nothing or the port is taken.
    """
    host, port = settings.host, settings.port
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise _wrong(settings, "host", f"{host!r}: {error.strerror}") from None
    if not (is_loopback(host) and is_loopback(str(address[0]))):
        _check_closed(settings)
    try:
        return socket.create_server((address[0], port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise _wrong(settings, "port", f"{host}:{port}: {os.strerror(error.errno or 0)}") from None


def _check_closed(settings: Settings) -> None:
    """Beyond this machine nobody comes in unknown: raises SettingsError where they would."""
    host = settings.host
    if settings.auth == "off":
        said = f"off lets everybody in who reaches {host}; use `keys`, or listen on 127.0.0.1"
        raise _wrong(settings, "auth", said)
    if settings.auth == "auto" and not closed_at(settings.state_dir / "state.db"):
        raise _wrong(
            settings,
            "host",
            f"{host} is no loopback address, and there is neither a key nor a user, so anyone who can reach "
            "it might use it. Make one with `serai keys create NAME` or `serai users add NAME`, set auth to "
            "keys, or listen on 127.0.0.1",
        )


def url(listener: socket.socket, settings: Settings) -> str:
    """What a browser on this machine opens."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{settings.base_path}/"


def at_most(limit: int, runner: web.AppRunner) -> Callable[[], asyncio.BaseProtocol]:
    """What answers a new connection: the runner's server, or a short refusal when `limit` are open."""
    full = QueueFull(f"{limit} connections are open, as many as may be (max_connections); try again later.")

    def connected() -> asyncio.BaseProtocol:
        assert runner.server is not None
        if len(runner.server.connections) >= limit:
            return _Full(bare(full.after(1.0)))
        return Connection(runner.server)

    return connected


class _Full(asyncio.Protocol):
    """Says that there is no room, and hangs up."""

    def __init__(self, said: bytes) -> None:
        self._said = said

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._said)
        transport.close()


def _wrong(settings: Settings, key: str, said: str) -> SettingsError:
    return SettingsError([f"{settings.origin(key)}: {key}: {said}"])
