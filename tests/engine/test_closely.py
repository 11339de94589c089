from __future__ import annotations

import anyio
import pytest

from engine.errors import UnknownModel
from engine.requests import ServiceClass
from tests.simulation import MIB, catalog, engine, model, request

pytestmark = pytest.mark.anyio


async def test_what_waits_and_what_runs_is_told_lane_by_lane():
    async with engine(catalog(model("a"), model("b"))) as opened, anyio.create_task_group() as tasks:
        for name in ("a", "b"):
            await opened.load(name)
        for n in range(4):
            tasks.start_soon(opened.submit, request("a", "x " * 200, id=f"a{n}"))
        tasks.start_soon(opened.submit, request("b", "x", id="b", service_class=ServiceClass.INTERACTIVE))
        await anyio.sleep(0.001)
        closely, lanes, batches = opened.closely, opened.closely.lanes(), opened.closely.batches()

        assert lanes and batches
        assert sum(lane.jobs for lane in lanes) + sum(batch.jobs for batch in batches) == 5
        assert batches[0].slot == "simulated:a/0" and batches[0].running >= 0
        assert {name for lane in lanes for name, _ in lane.by_class} <= {"interactive", "standard"}
        assert [lane.slack for lane in lanes] == sorted(lane.slack for lane in lanes)
        assert {s.unit for s in closely.next_up("simulated:a")} <= {lane.unit for lane in lanes}

    assert closely.lanes() == [] and closely.batches() == []


async def test_a_ledger_balances_and_says_who_would_leave():
    async with engine(catalog(model("a"), model("b"))) as opened:
        for name in ("a", "b"):
            await opened.load(name)
        closely = opened.closely
        (device,) = opened.view().devices

        assert sum(size for _, _, size in closely.ledger(device.name)) == device.used_bytes
        assert {each.unit for each in closely.leaving(device.name)} == {"a", "b"}
        free = device.budget_bytes - device.used_bytes
        assert closely.would_leave(device.name, free) == []
        assert len(closely.would_leave(device.name, free + 1) or ()) == 1
        assert closely.would_leave(device.name, device.budget_bytes * 2) is None


async def test_a_unit_is_told_before_and_after_it_came():
    async with engine(catalog(model("a"))) as opened:
        before = opened.closely.unit("a")
        await opened.submit(request("a", "hello"))
        after = opened.closely.unit("a")

        assert (before.weights_bytes, before.reload_seconds, before.curve) == (None, None, ())
        assert after.weights_bytes == 100 * MIB
        assert after.reload_seconds is not None and after.reload_seconds > 0
        assert len(after.curve) == 1
        with pytest.raises(UnknownModel):
            opened.closely.unit("none")


async def test_what_a_pin_would_displace_is_told_without_pinning():
    async with engine(catalog(model("a"), model("b")), memory=150 * MIB) as opened:
        await opened.submit(request("a", "hello"))
        await opened.submit(request("b", "hello"))

        assert opened.closely.displaced("a") == ("b",)
        assert not any(r.pinned for m in opened.view().models for r in m.residencies)


async def test_a_device_that_is_none_has_nothing():
    async with engine(catalog(model("a"))) as opened:
        closely = opened.closely

        assert (closely.ledger("no"), closely.next_up("no"), closely.leaving("no")) == ([], [], [])
        assert closely.would_leave("no", 1) is None
