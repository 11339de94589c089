"""What a whole engine leaves on disk, and takes up again when it is opened the next time."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from engine.actors.state_store import open_database
from engine.adapters import simulated
from engine.catalog import Catalog
from engine.config import Settings
from engine.devices.simulated import Simulated
from engine.errors import EngineError, Paused, StateChanged, StillBusy
from engine.offload import Inline, Offload
from engine.orders import Action, Order
from engine.parts import Parts
from engine.running import open_engine
from tests.simulation import MIB, Brittle, catalog, model, request

pytestmark = [
    pytest.mark.anyio,
    # The databases have threads of their own, which do not live in virtual time.
    pytest.mark.parametrize("anyio_backend", [("asyncio", {})], ids=["real"]),
]

quick = {"load_seconds": 0.0, "seconds_per_batch": 0.001, "seconds_per_cost": 0.0}
MODELS = catalog(
    *[model(name, options=quick | {"weights_bytes": 400 * MIB}) for name in "abc"],
    model("broken", options=quick | {"load_error": "no such weights"}),
)


@asynccontextmanager
async def opened(
    folder: Path,
    pins: tuple[str, ...] = (),
    break_traffic: bool = False,
    models: Catalog = MODELS,
    opening: Offload | None = None,
    **chosen,
):
    traffic = open_database(folder / "traffic.db", "normal")
    parts = Parts(
        devices=(Simulated("simulated:a", slots=1, memory=1000 * MIB),),
        locate=lambda spec: Path("/"),
        family=lambda name: simulated.FAMILY,
        opening=opening or Inline(),
        preparing=Inline(),
        state=open_database(folder / "state.db", "full"),
        traffic=traffic,
    )
    settings = Settings(devices="simulated:a", headroom=0.0, pins=pins, **chosen)
    async with open_engine(settings, models, parts) as engine:
        if break_traffic:
            traffic.execute("pragma query_only=1")
        yield engine


def rows(folder: Path, database: str, table: str) -> list[dict]:
    db = open_database(folder / database, "full")
    try:
        return list(db[table].rows)
    finally:
        db.close()


def pinned(engine) -> set[str]:
    return {m.id for m in engine.view().models for r in m.residencies if r.pinned and r.state == "ready"}


async def test_pins_are_resident_again_before_anything_is_asked(tmp_path):
    async with opened(tmp_path) as engine:
        await engine.pin("a", who="ann")
        await engine.pin("b", who="ann")
        assert pinned(engine) == {"a", "b"}
        await engine.unpin("a", who="ann")

    async with opened(tmp_path) as engine:
        assert pinned(engine) == {"b"}
        response = await engine.submit(request("b", "x"))

    assert not response.cold


class Gate:
    """Files are read at once until it is closed, then when it opens."""

    def __init__(self) -> None:
        self.closed, self.waits, self.opens = False, anyio.Event(), anyio.Event()

    async def __call__(self, work, /):
        if self.closed:
            self.waits.set()
            await self.opens.wait()
        return work()


async def test_an_unpin_is_the_last_word_while_a_pin_still_looks_for_what_no_longer_fits(tmp_path):
    gate = Gate()
    async with opened(tmp_path, opening=gate) as engine:
        await engine.load("a")
        gate.closed = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.pin, "a")
            await gate.waits.wait()
            await engine.unpin("a")
            gate.opens.set()

    async with opened(tmp_path) as engine:
        assert pinned(engine) == set()


async def test_a_pin_that_was_refused_does_not_come_back(tmp_path):
    async with opened(tmp_path) as engine:
        await engine.pin("a")
        await engine.pin("b")
        with pytest.raises(EngineError) as refused:
            await engine.pin("c")

    assert refused.value.code == "INSUFFICIENT_MEMORY"
    async with opened(tmp_path) as engine:
        assert pinned(engine) == {"a", "b"}


async def test_a_pin_that_no_longer_holds_is_no_end_of_the_server(tmp_path, caplog):
    caplog.set_level("CRITICAL", "engine")
    async with opened(tmp_path, pins=("a", "b", "c", "broken", "nobody")) as engine:
        assert len(pinned(engine)) == 2
        assert (await engine.submit(request("a", "x"))).outputs


async def test_a_pin_of_what_the_catalogue_lacks_now_is_an_alarm_and_is_kept(tmp_path, caplog):
    async with opened(tmp_path) as engine:
        await engine.pin("a")
        await engine.pin("b")
    caplog.set_level("ERROR", "engine")
    async with opened(tmp_path, models=catalog(MODELS.models["b"])) as engine:
        assert pinned(engine) == {"b"}
    alarms = [record.message for record in caplog.records if record.name == "engine.running"]
    async with opened(tmp_path) as engine:
        assert pinned(engine) == {"a", "b"}

    assert len(alarms) == 1 and "the pin of a does not hold" in alarms[0]


async def test_a_new_version_is_the_plain_unit_again_after_a_restart(tmp_path):
    async with opened(tmp_path) as engine:
        await engine.pin("a")
        await engine.operators.operate(Order(Action.RELOAD, "a"))
        await engine.submit(request("a", "x"))
        assert [r.unit for m in engine.view().models for r in m.residencies if r.pinned] == ["a#2"]
    kept = {(row["unit"], row["device"]) for row in rows(tmp_path, "state.db", "curves")}
    async with opened(tmp_path) as engine:
        again = [r.unit for m in engine.view().models for r in m.residencies if r.pinned]

    assert kept == {("a", "simulated:a")}
    assert again == ["a"]


async def test_a_pause_outlasts_the_server_and_a_resume_too(tmp_path):
    async with opened(tmp_path) as engine:
        await engine.operators.operate(Order(Action.PAUSE, "a"))
    async with opened(tmp_path) as engine:
        with pytest.raises(Paused):
            await engine.submit(request("a", "x"))
        await engine.operators.operate(Order(Action.RESUME, "a"))
    async with opened(tmp_path) as engine:
        assert (await engine.submit(request("a", "x"))).outputs


async def test_a_pin_is_kept_when_whoever_asked_for_it_has_left(tmp_path):
    slow = catalog(model("slow", options=quick | {"load_seconds": 0.3}))
    async with opened(tmp_path, models=slow) as engine:
        with anyio.move_on_after(0.1):
            await engine.pin("slow")
        await anyio.sleep(0.5)
    async with opened(tmp_path, models=slow) as engine:
        assert pinned(engine) == {"slow"}


async def test_a_drain_that_ran_out_of_time_leaves_the_model_paused_after_a_restart_too(tmp_path):
    slow = catalog(model("slow", options=quick | {"seconds_per_batch": 0.5}))
    async with opened(tmp_path, models=slow, drain_limit=0.1) as engine, anyio.create_task_group() as tasks:
        await engine.load("slow")
        tasks.start_soon(engine.submit, request("slow", "x"))
        await anyio.sleep(0.05)
        with pytest.raises(StillBusy):
            await engine.operators.operate(Order(Action.DRAIN, "slow"))
    async with opened(tmp_path, models=slow) as engine:
        with pytest.raises(Paused):
            await engine.submit(request("slow", "x"))


async def test_of_a_drain_and_a_resume_the_later_is_what_counts_after_a_restart(tmp_path):
    slow = catalog(model("slow", options=quick | {"seconds_per_batch": 0.5}))
    refused = []

    async def drain(engine) -> None:
        try:
            await engine.operators.operate(Order(Action.DRAIN, "slow", "ann"))
        except StillBusy as error:
            refused.append(error.message)

    async with opened(tmp_path, models=slow, drain_limit=0.3) as engine, anyio.create_task_group() as tasks:
        await engine.load("slow")
        tasks.start_soon(engine.submit, request("slow", "x"))
        await anyio.sleep(0.05)
        tasks.start_soon(drain, engine)
        await anyio.sleep(0.1)
        amid = rows(tmp_path, "state.db", "paused")
        await engine.operators.operate(Order(Action.RESUME, "slow", "bob"))
    async with opened(tmp_path, models=slow) as engine:
        assert (await engine.submit(request("slow", "x"))).outputs

    assert [row["model"] for row in amid] == ["slow"]  # as soon as it is so
    assert len(refused) == 1 and refused[0].endswith("slow was resumed meanwhile, and takes requests.")
    told = [
        (r["who"], r["action"], r["outcome"], r["after"])
        for r in rows(tmp_path, "state.db", "audit")
        if r["action"] != "load"
    ]
    assert told == [
        ("ann", "drain", "MODEL_BUSY", "loaded"),
        ("ann", "pause", "ok", "loaded, paused"),
        ("bob", "resume", "ok", "loaded"),
    ]


async def test_an_act_that_broke_has_ended_in_the_audit_too(tmp_path, caplog):
    caplog.set_level("CRITICAL", "engine")
    models = replace(MODELS, directories=(tmp_path,))
    async with opened(tmp_path, models=models, opening=Brittle(), catalog_watch=False) as engine:
        with pytest.raises(EngineError):
            await engine.operators.reload_catalog()
        assert (await engine.submit(request("a", "x"))).outputs

    assert [row["outcome"] for row in rows(tmp_path, "state.db", "audit")] == ["INTERNAL_ERROR"]


async def test_a_drained_model_is_paused_after_a_restart(tmp_path):
    async with opened(tmp_path) as engine:
        await engine.operators.operate(Order(Action.DRAIN, "a"))
    async with opened(tmp_path) as engine:
        with pytest.raises(Paused):
            await engine.submit(request("a", "x"))


async def test_a_version_of_before_the_restart_is_no_version_of_after_it(tmp_path):
    async with opened(tmp_path) as engine:
        fresh = engine.operators.version("a")
        await engine.load("a")
        seen = engine.operators.version("a")
        await engine.unload("a")
    async with opened(tmp_path) as engine:
        for version in (fresh, seen):
            with pytest.raises(StateChanged):
                await engine.operators.operate(Order(Action.LOAD, "a", if_version=version))
        await engine.load("a")
        with pytest.raises(StateChanged):
            await engine.operators.operate(Order(Action.UNLOAD, "a", if_version=seen))


async def test_the_audit_says_how_a_model_was_before_and_after(tmp_path):
    async with opened(tmp_path) as engine:
        await engine.pin("a", who="ann", reason="demo")
        await engine.operators.operate(Order(Action.PAUSE, "a", "ann"))
        told = await engine.operators.history(10, "a")

        await engine.operators.operate(Order(Action.PAUSE, "*"))
        (everything,) = await engine.operators.history(1)

    assert (everything.before, everything.after) == ("open", "paused")
    assert [(row.action, row.before, row.after, row.reason) for row in told] == [
        ("pause", "loaded, pinned", "loaded, pinned, paused", ""),
        ("pin", "available", "loaded, pinned", "demo"),
    ]


async def test_every_action_of_an_operator_leaves_its_intent_and_its_outcome(tmp_path):
    async with opened(tmp_path) as engine:
        await engine.load("a", who="ann", reason="demo")
        await engine.pin("a", who="ann")
        with pytest.raises(EngineError):
            await engine.unload("a", who="bob")
        await engine.unpin("a", who="ann")
        await engine.unload("a", who="bob")

    told = [
        (row["who"], row["action"], row["target"], row["outcome"])
        for row in rows(tmp_path, "state.db", "audit")
    ]
    assert told == [
        ("ann", "load", "a", "ok"),
        ("ann", "pin", "a", "ok"),
        ("bob", "unload", "a", "INVALID_INPUT"),
        ("ann", "unpin", "a", "ok"),
        ("bob", "unload", "a", "ok"),
    ]


async def test_run_times_are_known_again_after_a_restart(tmp_path):
    async with opened(tmp_path) as engine:
        for words in (1, 10, 100):
            await engine.submit(request("a", "w " * words))
    kept = rows(tmp_path, "state.db", "curves")
    async with opened(tmp_path) as engine:
        pass
    again = rows(tmp_path, "state.db", "curves")

    assert [(row["unit"], row["device"]) for row in kept] == [("a", "simulated:a")]
    assert kept[0]["points"].count("[") == 3
    assert again == kept


async def test_every_request_leaves_one_row_however_it_ended(tmp_path):
    async with opened(tmp_path) as engine:
        await engine.submit(request("a", "x", "y", id="good", session="s1"))
        for name, asked in (("broken", "x"), ("nobody", "x")):
            with pytest.raises(EngineError):
                await engine.submit(request(name, asked, id=name))

    kept = {row["request"]: row for row in rows(tmp_path, "traffic.db", "requests")}
    assert {name: row["outcome"] for name, row in kept.items()} == {
        "good": "ok",
        "broken": "MODEL_LOAD_FAILED",
        "nobody": "MODEL_NOT_FOUND",
    }
    assert (kept["good"]["items"], kept["good"]["session"], kept["good"]["cold"]) == (2, "s1", 1)
    assert [row["event"] for row in rows(tmp_path, "traffic.db", "residency")] == ["loaded", "failed"]
    assert sum(row["jobs"] for row in rows(tmp_path, "traffic.db", "batches")) == 2


async def test_traffic_that_cannot_be_written_harms_nobody(tmp_path):
    async with opened(tmp_path, break_traffic=True) as engine:
        for number in range(20):
            await engine.submit(request("a", "x", id=f"q{number}"))
        await engine.pin("a")

    assert rows(tmp_path, "traffic.db", "requests") == []
    async with opened(tmp_path) as engine:
        assert pinned(engine) == {"a"}
