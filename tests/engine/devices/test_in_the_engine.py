"""The whole engine on devices that keep what left, that others share, and that fail."""

from __future__ import annotations

import anyio
import pytest

from engine.engine import Engine
from engine.errors import EngineError
from tests.simulation import MIB, catalog, device, engine, model, request

pytestmark = pytest.mark.anyio

SLOW = {"load_seconds": 5.0, "restore_seconds": 0.05}


async def seconds(served: Engine, name: str) -> float:
    began = anyio.current_time()
    await served.submit(request(name, "hello"))
    return anyio.current_time() - began


async def test_a_model_that_was_evicted_comes_back_from_host_memory():
    models = catalog(*(model(name, options=SLOW) for name in "abc"))
    card = device(host_tier=True, memory=250 * MIB)
    async with engine(models, devices=(card,), host_memory=1024 * MIB) as served:
        cold = [await seconds(served, name) for name in "abc"]
        warm = [await seconds(served, name) for name in "abcabc"]

    assert min(cold) >= 5.0 and max(warm) < 1.0


async def test_without_room_in_host_memory_it_comes_from_disk():
    models = catalog(*(model(name, options=SLOW) for name in "abc"))
    card = device(host_tier=True, memory=250 * MIB)
    async with engine(models, devices=(card,), host_memory=50 * MIB) as served:
        waited = [await seconds(served, name) for name in "abcabc"]

    assert min(waited) >= 5.0


async def test_a_device_that_fails_is_served_by_the_other_and_nobody_notices():
    failing = device("simulated:a", lost_at=2)
    async with engine(catalog(model("m")), devices=(failing, device("simulated:b"))) as served:
        for number in range(6):
            answer = await served.submit(request("m", f"text {number}", id=f"q{number}"))
            assert len(answer.outputs) == 1
        await anyio.sleep(10.0)
        lost, other = served.view().devices

    assert (lost.busy_slots, other.busy_slots) == (0, 0)
    assert sum(lost.lines.values()) == 0 < sum(other.lines.values())


async def test_a_device_that_is_lost_before_it_ran_anything_is_found_out_by_a_load():
    failing = device("simulated:a")
    failing.lose()
    async with engine(catalog(model("m")), devices=(failing, device("simulated:b"))) as served:
        await seconds(served, "m")
        lost, other = served.view().devices

    assert "lost" in lost.alarm and other.alarm == ""


async def test_when_no_device_is_left_whoever_asks_is_told_at_once():
    only = device()
    only.lose()
    async with engine(catalog(model("m")), devices=(only,)) as served:
        with pytest.raises(EngineError, match="lost"):
            await seconds(served, "m")


async def test_what_others_hold_is_seen_as_it_varies():
    card = device(memory=1000 * MIB, foreign=lambda now: 300 * MIB)
    async with engine(catalog(model("m")), devices=(card,)) as served:
        await anyio.sleep(2.0)
        (there,) = served.view().devices

    assert there.lines["foreign"] == 300 * MIB
