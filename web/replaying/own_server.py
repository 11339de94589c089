"""A server of a replay's own: a child that lives as long as the replay, with the operator's settings."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio import to_thread

from engine.config import Settings
from engine.declarations import declarations
from replay.trace import BadTrace

PATIENCE = 120.0
"""Seconds until it must have said where it is."""

ENDING = 20.0


@asynccontextmanager
async def own_server(settings: Settings) -> AsyncIterator[str]:
    """Its URL. It keeps its state apart and records nothing. Raises BadTrace with its own words."""
    with tempfile.TemporaryDirectory(prefix="serai-") as name:
        folder = Path(name)
        (folder / "empty.toml").touch()
        log = folder / "log"
        with log.open("wb") as errors:
            process = await anyio.open_process(
                [sys.executable, "-m", "web", "serve", "--port", "0"],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=_environment(settings, folder),
                start_new_session=True,  # Ctrl-C is for the replay, which ends it in its turn
            )
        try:
            yield await _announced(process, log)
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process)


async def _announced(process: anyio.abc.Process, log: Path) -> str:
    assert process.stdout is not None
    said = b""
    with anyio.move_on_after(PATIENCE):
        async for piece in process.stdout:
            said += piece
            if b"\n" in said:
                break
    words = said.decode("utf-8", "replace").split()
    if words[:3] != ["Serai", "is", "at"]:
        tail = (await to_thread.run_sync(log.read_text))[-1000:].strip()
        raise BadTrace(f"A server for the replay did not start: {tail or 'it said nothing'}")
    return words[3].rstrip("/")


async def _end(process: anyio.abc.Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
        with anyio.move_on_after(ENDING):
            await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()
    await process.aclose()


def environment(settings: Settings) -> dict[str, str]:
    """For a child that is to have these settings. They go by the environment, which no list of processes
    shows; what stands in a file of settings counts no more."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SERAI_")}
    return kept | dict(_settings(settings)) | {"SERAI_CONFIG": os.devnull}


def _environment(settings: Settings, folder: Path) -> dict[str, str]:
    return environment(settings) | {
        "SERAI_CONFIG": str(folder / "empty.toml"),
        "SERAI_STATE_DIR": str(folder / "state"),
        "SERAI_RECORDING": "false",
        "SERAI_AUTH": "off",
        "SERAI_HOST": "127.0.0.1",
        "SERAI_BASE_PATH": "",
        "SERAI_LOG_LEVEL": "warning",
    }


def _settings(settings: Settings) -> Iterator[tuple[str, str]]:
    usual = Settings()
    for declared in declarations():
        value = getattr(settings, declared.name)
        if value != getattr(usual, declared.name) and declared.name != "port":
            yield declared.variable, _written(value)


def _written(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
