"""A recording that the unchanged actors made in virtual time: made once, for all tests."""

from __future__ import annotations

import asyncio
import atexit
import shutil
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any, TypeVar

import anyio
import pytest

from engine.actors.state_store import open_database
from engine.adapters import simulated
from engine.catalog import Catalog
from engine.config import Settings
from engine.devices.device import Device
from engine.devices.simulated import Simulated
from engine.offload import Inline
from engine.parts import Parts
from engine.running import open_engine
from replay.recording import Recording, read_database
from replay.twin.traffic import Traffic
from replay.virtualtime import VirtualTimeLoop
from tests.replay.twin.world import send, six_models, traffic
from tests.simulation import MIB

R = TypeVar("R")

SETTINGS = Settings.model_validate({"devices": "simulated:a", "headroom": 0.0, "max_model_jobs": 200})


def wall() -> float:
    try:
        return 1.7e9 + asyncio.get_running_loop().time()
    except RuntimeError:  # on the writer's thread
        return 1.7e9


async def at_once(work: Callable[..., Any], *args: Any, **_: Any) -> Any:
    """A thread would take real time, in which the virtual clock runs away and samples without end."""
    return work(*args)


def standing_on(device: Device, folder: Path) -> Parts:
    return Parts(
        devices=(device,),
        locate=lambda spec: Path("/"),
        family=lambda name: simulated.FAMILY,
        opening=Inline(),
        preparing=Inline(),
        traffic=open_database(folder / "traffic.db", "normal"),
    )


def in_virtual_time(work: Callable[..., Awaitable[R]], *args: Any) -> R:
    """Also what is recorded is told by the virtual clock."""
    with pytest.MonkeyPatch.context() as patched:
        # The wall clock that rows are told by must run as the loop's does.
        patched.setattr("engine.actors.recorder.time", SimpleNamespace(time=wall, monotonic=wall))
        patched.setattr("anyio.to_thread.run_sync", at_once)
        return anyio.run(work, *args, backend_options={"loop_factory": VirtualTimeLoop})


async def record(folder: Path, settings: Settings, models: Catalog, device: Device, sent: Traffic) -> None:
    async with open_engine(settings, models, standing_on(device, folder)) as opened:
        await opened.recordings.start("made")
        await send(opened, sent, anyio.current_time() + 1)
        await opened.recordings.stop()


def made(folder: Path, settings: Settings, models: Catalog, device: Device, sent: Traffic) -> Path:
    """The database with what the actors did with this traffic, as the recording `made`."""
    in_virtual_time(record, folder, settings, models, device, sent)
    return folder / "traffic.db"


@cache
def recording_database() -> Path:
    """1,000 requests to six models of which half fit, as the recording `made`."""
    folder = Path(mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    device = Simulated("simulated:a", slots=1, memory=420 * MIB)
    return made(folder, SETTINGS, six_models(), device, traffic(1000, rate=25, seed=5))


@cache
def recorded() -> Recording:
    return read_database(recording_database(), "made")
