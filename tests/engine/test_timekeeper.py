"""Times of day in catalogue entries, with a whole engine in virtual time."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import anyio
import pytest

from engine.adapters import simulated
from engine.config import Settings
from engine.devices.simulated import Simulated
from engine.offload import Inline
from engine.parts import Parts
from engine.running import open_engine
from tests.simulation import MIB, catalog, model, request

pytestmark = pytest.mark.anyio

ZONE = "Europe/Berlin"
MONDAY = datetime(2026, 1, 5, 7, 0, tzinfo=ZoneInfo(ZONE)).timestamp()
HOUR = 3600.0
OPTIONS = {"weights_bytes": 400 * MIB, "load_seconds": 1.0}


@asynccontextmanager
async def opened(*models, memory=1000 * MIB, jump=lambda now: 0.0):
    """At seven on a Monday; `jump` is added to what the clock says."""
    began = anyio.current_time()

    def clock() -> float:
        spent = anyio.current_time() - began
        return MONDAY + spent + jump(spent)

    parts = Parts(
        devices=(Simulated("simulated:a", slots=1, memory=memory),),
        locate=lambda spec: Path("/"),
        family=lambda name: simulated.FAMILY,
        opening=Inline(),
        preparing=Inline(),
        clock=clock,
    )
    settings = Settings(devices="simulated:a", headroom=0.0, schedule_timezone=ZONE)
    async with open_engine(settings, catalog(*models), parts) as engine:
        yield engine


def states(engine) -> dict[str, str]:
    return {m.id: m.state for m in engine.view().models}


async def test_a_model_is_there_from_its_time_to_its_time():
    day = model("day", options=OPTIONS, preheat="Mon-Fri 08:00", unload="22:00")
    async with opened(day) as engine:
        await anyio.sleep(0.99 * HOUR)
        early = states(engine)
        await anyio.sleep(0.01 * HOUR + 10)
        morning, loads = states(engine), engine.view().models[0].loads
        await anyio.sleep(14 * HOUR)
        night = states(engine)
        await anyio.sleep(11 * HOUR)
        tuesday, all_loads = states(engine), engine.view().models[0].loads

    assert (early, morning) == ({"day": "available"}, {"day": "loaded"})
    assert (night, tuesday) == ({"day": "available"}, {"day": "loaded"})
    assert loads == 1 and all_loads == 2


async def test_what_works_is_unloaded_when_it_rests_and_what_is_pinned_never(caplog):
    caplog.set_level("WARNING", "engine.timekeeper")
    slow = OPTIONS | {"seconds_per_batch": 50.0}
    busy = model("busy", options=slow, unload="08:00", limits={"max_batch_jobs": 1})
    pinned = model("pinned", options=OPTIONS, unload="08:00")
    async with opened(busy, pinned) as engine:
        await engine.pin("pinned")
        await engine.load("busy")
        async with anyio.create_task_group() as tasks:
            await anyio.sleep(0.99 * HOUR)
            for _ in range(3):
                tasks.start_soon(engine.submit, request("busy", "x"))
            await anyio.sleep(0.02 * HOUR)
            at_work = states(engine)
        await anyio.sleep(10)
        at_rest, loads = states(engine), engine.view().models[0].loads

    assert at_work == {"busy": "loaded", "pinned": "loaded"}
    assert at_rest == {"busy": "available", "pinned": "loaded"} and loads == 1
    assert caplog.records == []


async def test_preheating_turns_out_nobody_who_is_in_use():
    warm = model("warm", options=OPTIONS | {"weights_bytes": 900 * MIB})
    early = model("early", options=OPTIONS, preheat="08:00")
    async with opened(warm, early) as engine:
        for _ in range(72):
            await engine.submit(request("warm", "x"))
            await anyio.sleep(60)
        seen = states(engine)

    assert seen == {"warm": "loaded", "early": "available"}


async def test_a_clock_that_breaks_ends_nothing(caplog):
    caplog.set_level("CRITICAL", "engine")
    day = model("day", options=OPTIONS, preheat="08:00")

    def broken(spent: float) -> float:
        if 0 < spent < 0.5 * HOUR:
            raise OverflowError("no such time")
        return 0.0

    async with opened(day, jump=broken) as engine:
        await anyio.sleep(1.1 * HOUR)
        seen = states(engine)

    assert seen == {"day": "loaded"}


async def test_a_clock_that_is_put_back_preheats_once():
    day = model("day", options=OPTIONS, preheat="08:00")
    back = 0.5 * HOUR
    async with opened(day, jump=lambda spent: -back if spent > 1.2 * HOUR else 0.0) as engine:
        await anyio.sleep(1.1 * HOUR)
        assert states(engine) == {"day": "loaded"}
        await engine.unload("day")
        await anyio.sleep(2 * HOUR)
        seen = states(engine)

    assert seen == {"day": "available"}
