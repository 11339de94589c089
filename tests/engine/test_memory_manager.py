"""The memory manager among the other actors: what it decided really happens, in virtual time."""

from __future__ import annotations

import anyio
import pytest

from engine.errors import EngineError
from tests.simulation import MIB, catalog, device, engine, model, request

pytestmark = pytest.mark.anyio


def sized(name: str, mebibytes: int, **options):
    return model(name, options={"weights_bytes": mebibytes * MIB, **options})


def residency(served, name: str):
    (seen,) = [m for m in served.view().models if m.id == name]
    return {(r.device, r.state) for r in seen.residencies}


async def took(served, name: str) -> float:
    began = anyio.current_time()
    await served.submit(request(name, "x"))
    return anyio.current_time() - began


async def test_evicted_weights_come_back_from_host_memory():
    models = catalog(
        sized("a", 600, load_seconds=4.0, restore_seconds=0.25), sized("b", 600, load_seconds=1.0)
    )
    card = device(memory=1000 * MIB, host_tier=True)
    async with engine(models, devices=(card,), host_memory=2000 * MIB) as served:
        first = await took(served, "a")
        await anyio.sleep(5)
        await served.submit(request("b", "x"))
        kept = dict(served.view().host)
        await anyio.sleep(5)
        second = await took(served, "a")
        await anyio.sleep(1)
        after = dict(served.view().host)

    assert first > 4.0 and second < 1.0
    assert kept == {"a": 600 * MIB} and after == {"b": 600 * MIB}


async def test_without_host_memory_they_are_read_again():
    models = catalog(
        sized("a", 600, load_seconds=4.0, restore_seconds=0.25), sized("b", 600, load_seconds=1.0)
    )
    card = device(memory=1000 * MIB, host_tier=True)
    async with engine(models, devices=(card,), host_memory=0) as served:
        for name in ("a", "b"):
            await served.submit(request(name, "x"))
            await anyio.sleep(5)

        assert await took(served, "a") > 4.0
        assert served.view().host == {}


async def test_what_an_operator_unloads_while_it_loads_is_gone_when_that_is_answered():
    models = catalog(sized("a", 100, load_seconds=3.0))
    async with engine(models, memory=1000 * MIB) as served:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(expect_error, served.load, "a")
            await anyio.sleep(1)
            began = anyio.current_time()
            await served.unload("a")
            waited = anyio.current_time() - began
        (card,) = served.view().devices

        assert waited == pytest.approx(2.0) and residency(served, "a") == set()
        assert card.lines["weights"] == 0


async def expect_error(do, name):
    with pytest.raises(EngineError, match="unloaded before it was ready"):
        await do(name)


async def test_a_lost_device_s_models_are_served_by_the_other():
    models = catalog(sized("a", 100, load_seconds=0.1))
    devices = (
        device("simulated:a", memory=1000 * MIB, lost_at=2),
        device("simulated:b", memory=900 * MIB),
    )
    async with engine(models, devices=devices) as served:
        await served.pin("a")
        await served.submit(request("a", "one"))
        await served.submit(request("a", "two"))
        await anyio.sleep(5)
        lost, other = served.view().devices

        assert lost.used_bytes == 0 and "simulated:a is lost" in lost.alarm and other.alarm == ""
        assert residency(served, "a") == {("simulated:b", "ready")}
        assert served.view().models[0].residencies[0].pinned


async def test_what_crowds_a_card_is_an_alarm_and_refuses_what_is_not_there():
    models = catalog(sized("a", 600, load_seconds=0.1), sized("b", 100, load_seconds=0.1))
    card = device(memory=1000 * MIB, foreign=lambda now: 500 * MIB if 10 < now % 1000 < 30 else 0)
    async with engine(models, devices=(card,)) as served:
        await served.pin("a")
        offset = anyio.current_time() % 1000
        await anyio.sleep(15 - offset)
        with pytest.raises(EngineError) as refused:
            await served.submit(request("b", "x"))
        alarm = served.view().devices[0].alarm
        await served.submit(request("a", "still served"))
        await anyio.sleep(20)
        await served.submit(request("b", "x"))

        assert refused.value.code == "RESOURCE_EXHAUSTED" and refused.value.retry_after
        assert "Other processes hold" in alarm and served.view().devices[0].alarm == ""


async def test_models_that_turn_each_other_out_are_seen_and_counted():
    models = catalog(sized("a", 600, load_seconds=0.2), sized("b", 600, load_seconds=0.2))
    async with engine(models, memory=1000 * MIB) as served:
        for _ in range(5):
            for name in "ab":
                await served.submit(request(name, "x"))
                await anyio.sleep(1)
        metrics = served.metrics().decode()

        assert served.view().thrashing
        assert 'serai_thrash_total{model="a"}' in metrics
