"""The HTTP server as a guest of the engine: it listens while asked to, and leaves in good order.

First signal: nothing new is admitted, `/readyz` turns red, what is in flight finishes within
`drain_limit`. Second signal: the process ends at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import anyio
from aiohttp import web
from anyio import to_thread
from anyio.abc import TaskStatus

from engine.adapters.family import family
from engine.catalog import Catalog, Source
from engine.config import Settings
from engine.running import open_engine
from web.app import make_app
from web.engine import Engine
from web.listening import BACKLOG, at_most, url

log = logging.getLogger(__name__)

GARBAGE = (5_000, 5, 400)
"""When Python looks for cycles. What requests leave is freed without; the few cycles are found young.

A look at everything stops every thread, for a tenth of a second with 2,000 connections open. By Python's
own numbers it comes about once a second then, and finds nothing.
"""

ACCEPTED = 64
"""Connections that are taken in one turn of the event loop: a burst of them waits, not those who are here."""

LAST_WORDS = 1.0
"""Seconds that handlers get, after the engine is done, to write what they hold; then as much to end."""


class Drained(Engine, Protocol):
    """An engine that can be told to take nothing new."""

    async def drain(self, limit: float) -> bool:
        """Admit nothing from now on, wait for what is in flight; whether all of it ended in time."""
        ...


async def serve(
    engine: Drained,
    listener: socket.socket,
    stop: anyio.Event,
    *,
    task_status: TaskStatus[str] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Answer requests until `stop`, then drain. Its status is the URL, once it can be asked.

    A client that hangs up cancels its handler, so that nothing works for nobody.
    """
    settings = engine.settings
    runner = web.AppRunner(make_app(engine), handler_cancellation=True, shutdown_timeout=LAST_WORDS)
    await runner.setup()
    server = await asyncio.get_running_loop().create_server(
        at_most(settings.max_connections, runner), sock=listener, backlog=ACCEPTED
    )
    listener.listen(BACKLOG)  # how many may wait is not how many are taken at once
    try:
        task_status.started(url(listener, settings))
        await stop.wait()
        limit = settings.drain_limit
        log.warning("stopping: requests in flight have %g s; another signal ends at once", limit)
        # The port stays open meanwhile: probes must see that it drains, and clients be told to wait.
        if not await engine.drain(limit):
            log.warning("requests were still in flight after %g s and are cut off", limit)
    finally:
        server.close()
        with anyio.CancelScope(shield=True):
            await runner.cleanup()


async def run(
    settings: Settings, catalog: Catalog, listener: socket.socket, announce: Callable[[str, Engine], None]
) -> None:
    """The whole server, until a signal ends it. `announce` hears the URL when it can be asked."""
    stop = anyio.Event()
    async with anyio.create_task_group() as watchers:
        await watchers.start(stop_on_signal, stop)
        async with open_engine(settings, catalog) as engine, anyio.create_task_group() as guests:
            gc.collect()
            gc.freeze()  # what was imported until now stays: nobody need look there for cycles
            gc.set_threshold(*GARBAGE)
            guests.start_soon(import_families, catalog)
            announce(await guests.start(serve, engine, listener, stop), engine)
        watchers.cancel_scope.cancel()


async def import_families(catalog: Catalog) -> None:
    """Import what the catalogue's families stand on, beside the first requests instead of within them.

    Of families with weights on this machine: all of them take many seconds, and a first load waits for
    whatever is being imported. A family whose libraries are missing says so when it is asked for.
    """
    for name in sorted({spec.family for spec in catalog if any(map(_here, spec.sources))}):
        with contextlib.suppress(Exception):
            await to_thread.run_sync(family, name, abandon_on_cancel=True)
    gc.freeze()  # a look at all of it would stop every thread for a quarter of a second


def _here(source: Source) -> bool:
    if source.directory:
        return Path(source.directory).expanduser().is_dir()
    return bool(source.wheel)


async def stop_on_signal(
    stop: anyio.Event, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    """Set `stop` at the first SIGTERM or SIGINT; leave the second to the system, which ends the process."""
    endings = (signal.SIGTERM, signal.SIGINT)
    with anyio.open_signal_receiver(*endings) as received:
        task_status.started()
        async for _ in received:
            break
    # The next one ends the process whatever the event loop is busy with: nothing of ours handles it.
    for ending in endings:
        signal.signal(ending, signal.SIG_DFL)
    stop.set()
