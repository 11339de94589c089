"""`serai serve` as a child process of the demo, on a free port and with little memory."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from anyio import CancelScope
from anyio.abc import Process

import engine
from engine.quantities import as_size
from web.demo.failing import DemoFailed

ROOT = Path(engine.__file__).parents[1]
START = 120.0
"""Seconds that the server may take to start."""
LAST_LINES = 15


@asynccontextmanager
async def served(memory: int, store: Path) -> AsyncIterator[str]:
    """The URL of a server of our own; when the block ends it drains.

    SIGINT or SIGTERM ends the block as if it were cancelled; a second one kills the server.
    Raises DemoFailed with the last lines of its log when it does not start.
    """
    with TemporaryDirectory(prefix="serai-demo-") as place:
        log = Path(place) / "server.log"
        with log.open("wb") as stderr:
            # In a session of its own: Ctrl-C is the demo's, which then tells the server once.
            command, ours = _command(memory, store, Path(place)), {"PYTHONPATH": str(ROOT)}
            async with await anyio.open_process(
                command, env={**os.environ, **ours}, stderr=stderr, start_new_session=True
            ) as process:
                async with _obeying(process):
                    yield await _url(process, log)


def _command(memory: int, store: Path, place: Path) -> Sequence[str]:
    """On the processor, so that the budget is the same everywhere; records go where the demo leaves none."""
    return [
        *(sys.executable, "-P", "-m", "web", "serve", "--host=127.0.0.1", "--port=0", "--device=cpu"),
        *(f"--memory={as_size(memory)}", f"--store={store}", f"--set=state_dir={place / 'state'}"),
        *("--set=max_hold=10min", "--set=auth=off"),
    ]


@asynccontextmanager
async def _obeying(process: Process) -> AsyncIterator[None]:
    """Ends the block at a signal, and the process with the block."""
    watch = CancelScope(shield=True)
    async with anyio.create_task_group() as tasks:
        work = tasks.cancel_scope
        tasks.start_soon(_obey, process, work, watch)
        try:
            yield
        finally:
            with CancelScope(shield=True):
                if process.returncode is None:
                    process.terminate()
                await process.wait()
            watch.cancel()


async def _obey(process: Process, work: CancelScope, watch: CancelScope) -> None:
    with watch, anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            if work.cancel_called:
                process.kill()
            work.cancel()


async def _url(process: Process, log: Path) -> str:
    """From the one line that the server says when it can be asked."""
    assert process.stdout is not None
    said = ""
    with anyio.move_on_after(START):
        async for chunk in process.stdout:
            said += chunk.decode()
            if found := re.search(r"http://\S+", said):
                return found[0]
    lines = (await anyio.Path(log).read_text("utf-8", errors="replace")).splitlines()[-LAST_LINES:]
    raise DemoFailed("\n".join(["The server did not start. It said:", *lines]))
