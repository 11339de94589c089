"""What a whole engine leaves on disk, and takes up again when it is opened the next time."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from engine.actors.state_store import open_database
from engine.adapters import simulated
from engine.config import Settings
from engine.devices.simulated import Simulated
from engine.errors import EngineError
from engine.offload import Inline
from engine.parts import Parts
from engine.running import open_engine
from tests.simulation import MIB, catalog, model, request

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
async def opened(folder: Path, pins: tuple[str, ...] = (), break_traffic: bool = False):
    traffic = open_database(folder / "traffic.db", "normal")
    parts = Parts(
        devices=(Simulated("simulated:a", slots=1, memory=1000 * MIB),),
        locate=lambda spec: Path("/"),
        family=lambda name: simulated.FAMILY,
        opening=Inline(),
        preparing=Inline(),
        state=open_database(folder / "state.db", "full"),
        traffic=traffic,
    )
    settings = Settings(devices="simulated:a", headroom=0.0, pins=pins)
    async with open_engine(settings, MODELS, parts) as engine:
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
