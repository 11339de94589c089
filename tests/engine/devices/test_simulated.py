"""What a simulated device can be told to do, in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable

import anyio
import pytest

from engine.adapters import simulated
from engine.adapters.simulated import Declared, SimulatedModel
from engine.devices.device import DeviceLost
from tests.simulation import MIB, device

pytestmark = pytest.mark.anyio


def model(**declared: object) -> SimulatedModel:
    options = {"seconds_per_batch": 1.0, "seconds_per_cost": 0.0, "workspace_per_cost": 10.0} | declared
    return SimulatedModel(Declared(**options), 8)  # type: ignore[arg-type]


async def refused(work: Awaitable[object], into: list[float]) -> None:
    with pytest.raises(DeviceLost):
        await work
    into.append(anyio.current_time())


async def test_it_is_lost_in_the_batch_that_was_named_and_ever_after():
    card = device(lost_at=2)
    assert await card.run(0, model(), 1, lambda: "first") == "first"

    for _ in range(2):
        with pytest.raises(DeviceLost):
            await card.run(0, model(), 1, lambda: "never")


async def test_what_runs_and_loads_when_it_is_lost_fails_too():
    card, failed = device(slots=2), []
    began = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(refused, card.run(0, model(), 1, lambda: 1), failed)
        tasks.start_soon(refused, card.load("m", lambda: model(load_seconds=3.0)), failed)
        await anyio.sleep(0.5)
        card.lose()
        tasks.start_soon(refused, card.run(1, model(), 1, lambda: 1), failed)

    assert [round(at - began, 3) for at in failed] == [0.5, 1.0, 3.0]


async def test_a_batch_that_ran_alone_tells_its_peak():
    card = device(slots=2)
    await card.run(0, model(), 7, lambda: None)
    assert card.peak(0) == 70

    await card.run(0, model(peak_per_cost=25.0), 4, lambda: None)
    assert card.peak(0) == 100


async def test_of_batches_at_once_nobody_knows_which_took_what():
    card = device(slots=2)
    async with anyio.create_task_group() as tasks:
        for slot in range(2):
            tasks.start_soon(card.run, slot, model(), 7, lambda: None)

    assert [card.peak(slot) for slot in range(2)] == [0, 0]


async def test_a_batch_that_failed_has_no_peak_left_from_the_one_before():
    card = device()
    await card.run(0, model(), 7, lambda: None)

    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await card.run(0, model(), 7, fail)
    assert card.peak(0) == 0


async def test_coming_back_from_host_memory_takes_its_own_time():
    card = device(host_tier=True)
    there = await card.load("m", lambda: model(weights_bytes=5 * MIB, load_seconds=9.0, restore_seconds=0.25))

    parked = await card.park("m", there)
    began = anyio.current_time()
    back = await card.restore("m", parked)

    assert anyio.current_time() - began == pytest.approx(0.25)
    assert back is there and parked.nbytes == 5 * MIB


async def test_what_others_hold_varies_with_time():
    card = device(foreign=lambda now: int(now) * MIB)
    assert card.watched and not device().watched

    first = await card.seen()
    await anyio.sleep(10.0)

    assert (await card.seen()).foreign_bytes - first.foreign_bytes == 10 * MIB


def test_memory_runs_out_above_the_declared_cost():
    small = model(out_of_memory_above=3)
    job = simulated.Prepared(2, (simulated.Task.ENCODE, "two words", 0), 9)

    assert len(small.run([job])) == 1
    with pytest.raises(MemoryError):
        small.run([job, job])
