"""What operators do over HTTP: what is taken, what is refused, and what comes back."""

from __future__ import annotations

from contextlib import asynccontextmanager

import anyio
import pytest
from aiohttp import ClientSession

from engine import catalog as catalogues
from engine.errors import CatalogRejected, NoRoom
from engine.orders import Action, Order
from tests import simulation
from tests.engine.test_changeover import entry, write
from tests.web.conftest import serving

pytestmark = pytest.mark.anyio

MODEL = "/v1/admin/models/fake/encoder"


async def told(response) -> tuple[int, dict]:
    body = await response.json()
    return response.status, body.get("detail", body)


@pytest.mark.parametrize("action", [*Action])
async def test_an_act_is_ordered_with_its_reason_and_answers_how_the_model_is(engine, http, action):
    async with http.post(f"{MODEL}/{action}", json={"reason": "demo", "if_version": 0}) as response:
        status, said = await told(response)

    assert (status, said["name"], said["version"]) == (200, "fake/encoder", 1)
    assert engine.orders == [Order(action, "fake/encoder", "operator", "demo", if_version=0)]
    assert said["no_longer_fits"] == (["fake/writer"] if action is Action.PIN else [])


async def test_an_act_needs_no_body_and_a_pin_may_say_where(engine, http):
    async with http.post(f"{MODEL}:short/load") as response:
        assert response.status == 200
    async with http.post(f"{MODEL}/pin", json={"device": "cpu", "min_slots": 2}) as response:
        assert response.status == 200

    assert engine.orders[0].model == "fake/encoder:short"
    assert (engine.orders[1].device, engine.orders[1].min_slots) == ("cpu", 2)


async def test_the_older_address_takes_the_same_path(engine, http):
    async with http.post("/v1/models/fake/encoder/pause", json={"reason": "demo"}) as response:
        assert response.status == 200

    assert engine.orders == [Order(Action.PAUSE, "fake/encoder", "operator", "demo")]


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        (f"{MODEL}/explode", b"", 404, "NOT_FOUND"),
        (f"{MODEL}/pin", b"{", 400, "INVALID_INPUT"),
        (f"{MODEL}/pin", b"[]", 400, "INVALID_INPUT"),
        (f"{MODEL}/pin", b'{"resaon": "x"}', 400, "INVALID_INPUT"),
        (f"{MODEL}/pin", b'{"min_slots": 0}', 400, "INVALID_INPUT"),
        (f"{MODEL}/pin", b'{"if_version": "two"}', 400, "INVALID_INPUT"),
        (f"{MODEL}/load", b'{"device": "cpu"}', 400, "INVALID_INPUT"),
        ("/v1/admin/pause", b'{"device": "cpu"}', 400, "INVALID_INPUT"),
        ("/v1/admin/catalog", b"", 405, "METHOD_NOT_ALLOWED"),
        ("/v1/admin/models/fake", b"", 405, "METHOD_NOT_ALLOWED"),
    ],
)
async def test_what_is_no_order_is_refused_and_nothing_is_done(engine, http, path, body, status, code):
    async with http.post(path, data=body, headers={"Content-Type": "application/json"}) as response:
        found, said = await told(response)

    assert (found, said["code"]) == (status, code)
    assert engine.orders == []


async def test_a_pin_that_does_not_fit_is_told_with_its_arithmetic(engine, http):
    engine.failure = NoRoom("fake/encoder takes 900 MiB; cpu has 100 MiB.", pins=["fake/writer"])
    async with http.post(f"{MODEL}/pin") as response:
        status, said = await told(response)

    assert (status, said["code"], said["pins"]) == (507, "INSUFFICIENT_MEMORY", ["fake/writer"])


async def test_all_intake_is_paused_and_resumed(engine, http):
    async with http.post("/v1/admin/pause", json={"reason": "moving"}) as response:
        paused = await told(response)
    async with http.post("/v1/admin/resume") as response:
        resumed = await told(response)

    assert (paused, resumed) == (
        (200, {"paused": True, "version": 1}),
        (200, {"paused": False, "version": 2}),
    )
    assert [(order.action, order.model) for order in engine.orders] == [("pause", "*"), ("resume", "*")]


async def test_a_catalogue_is_reloaded_and_a_wrong_one_is_refused_with_every_line(engine, http):
    async with http.post("/v1/admin/catalog/reload") as response:
        good = await told(response)
    engine.failure = CatalogRejected("Nothing was changed.", complaints=["it.yaml:3: models.0.id: no"])
    async with http.post("/v1/admin/catalog/reload") as response:
        status, said = await told(response)

    assert good[0] == 200 and good[1]["added"] == ["fake/new"]
    assert good[1]["rolled_back"] == {"fake/writer": "no such weights"}
    assert (status, said["code"]) == (422, "CATALOG_INVALID")
    assert said["complaints"] == ["it.yaml:3: models.0.id: no"]


async def test_the_audit_is_told_the_newest_first(http):
    for action in ("load", "pin"):
        async with http.post(f"{MODEL}/{action}"):
            pass
    async with http.get("/v1/admin/audit", params={"model": "fake/encoder", "limit": 1}) as response:
        status, said = await told(response)

    assert status == 200
    assert [(row["action"], row["target"], row["outcome"]) for row in said["actions"]] == [
        ("pin", "fake/encoder", "ok")
    ]


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "ten", "", "1.5"])
async def test_a_limit_that_is_none_is_refused(http, limit):
    async with http.get("/v1/admin/audit", params={"limit": limit}) as response:
        status, said = await told(response)

    assert (status, said["code"]) == (400, "INVALID_INPUT")


async def test_the_ledger_is_told_to_the_byte(http):
    async with http.get("/v1/admin/devices") as response:
        status, said = await told(response)

    (device,) = said["devices"]
    assert status == 200
    assert (device["name"], device["used_bytes"], device["free_bytes"]) == ("cpu", 1000, 2000)
    assert device["lines"] == {"weights": 1000}
    assert [(unit["unit"], unit["weights_bytes"]) for unit in device["units"]] == [("fake/encoder", 1000)]


@asynccontextmanager
async def operated(folder, *entries, **settings):
    """A client of a server with simulated models."""
    write(folder, *entries)
    read = catalogues.load([folder], {"simulated"})
    async with simulation.engine(read, catalog_watch=False, **settings) as opened:
        async with serving(opened) as url, ClientSession(url, headers={"Accept": "application/json"}) as http:
            yield http


FAST = {"load_seconds": 0.01, "seconds_per_batch": 0.001}


async def test_a_whole_server_is_operated(tmp_path):
    async with operated(tmp_path, entry("a", options=FAST), entry("b", options=FAST)) as http:
        body = {"items": [{"text": "x"}]}

        async def post(path, **said):
            async with http.post(path, json=said) as response:
                return (*await told(response), response.headers)

        _, pinned, _ = await post("/v1/admin/models/a/pin", reason="demo")
        status, refused, _ = await post("/v1/admin/models/a/unload")
        assert (status, refused["code"]) == (400, "INVALID_INPUT")
        status, stale, _ = await post("/v1/admin/models/a/unpin", if_version=pinned["version"])
        assert (status, stale["code"], stale["changes"][0]["action"]) == (409, "STATE_CHANGED", "unload")
        await post("/v1/admin/models/a/unpin", if_version=stale["version"])
        status, drained, _ = await post("/v1/admin/models/a/drain")
        assert (status, drained["state"], drained["paused"]) == (200, "available", True)
        status, refused, headers = await post("/v1/encode/a", **body)
        assert (status, refused["code"], headers["Retry-After"]) == (503, "MODEL_PAUSED", "5")
        await post("/v1/admin/models/a/resume")
        assert (await post("/v1/encode/a", **body))[0] == 200
        assert (await post("/v1/admin/models/a/reload"))[0] == 200

        write(tmp_path, entry("a", options=FAST), entry("c", options=FAST, degrade="d"))
        status, wrong, _ = await post("/v1/admin/catalog/reload")
        assert (status, wrong["code"], len(wrong["complaints"])) == (422, "CATALOG_INVALID", 1)
        async with http.get("/v1/admin/catalog") as response:
            assert (await response.json())["complaints"] == wrong["complaints"]
        write(tmp_path, entry("a", options=FAST), entry("c", options=FAST))
        status, done, _ = await post("/v1/admin/catalog/reload")
        assert (status, done["added"], done["removed"]) == (200, ["c"], ["b"])
        status, gone, _ = await post("/v1/encode/b", **body)
        assert (status, gone["code"]) == (404, "MODEL_NOT_FOUND")
        assert (await post("/v1/encode/c", **body))[0] == 200
        status, unknown, _ = await post("/v1/admin/models/b/load")
        assert (status, unknown["code"]) == (404, "MODEL_NOT_FOUND")


async def test_a_stopped_drain_says_what_is_left(tmp_path):
    slow = FAST | {"seconds_per_batch": 0.5}
    async with operated(tmp_path, entry("a", options=slow), drain_limit=0.1) as http:
        body = {"items": [{"text": "x"}]}
        async with http.post("/v1/encode/a", json=body):
            pass  # it is warm now
        async with anyio.create_task_group() as tasks:

            async def ask():
                async with http.post("/v1/encode/a", json=body) as response:
                    assert response.status == 200

            tasks.start_soon(ask)
            await anyio.sleep(0.1)
            async with http.post("/v1/admin/models/a/drain") as response:
                status, said = await told(response)

    assert (status, said["code"]) == (409, "MODEL_BUSY")
    assert said["left"] == {"preparing": 0, "waiting": 0, "running": 1}
