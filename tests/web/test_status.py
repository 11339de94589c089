"""What the server shows of itself, to people and to programs."""

from __future__ import annotations

import anyio
import pytest
from aiohttp import ClientSession

from engine.errors import NoRoom
from tests.web.conftest import serving

pytestmark = pytest.mark.anyio


async def test_a_program_gets_links(http):
    async with http.get("/") as response:
        said = await response.json()

    assert said["links"]["models"] == "/v1/models"
    assert said["name"] == "serai"


async def test_metrics_are_passed_on(http):
    async with http.get("/metrics") as response:
        assert await response.text() == "serai_requests_total 0\n"
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")


async def test_the_catalogue_is_listed_with_what_happened_to_it(http):
    async with http.get("/v1/models") as response:
        models = {m["name"]: m for m in (await response.json())["models"]}

    assert list(models) == ["fake/encoder", "fake/reranker", "fake/extractor", "fake/writer"]
    assert models["fake/encoder"]["state"] == "loaded"
    assert models["fake/encoder"]["profiles"] == {
        "default": {"is_default": True},
        "short": {"is_default": False},
    }
    assert models["fake/encoder"]["aliases"] == ["encoder"]
    assert models["fake/encoder"]["revision"] == "r1"
    assert models["fake/reranker"]["last_error"]["code"] == "MODEL_LOAD_FAILED"
    assert models["fake/writer"]["state"] == "available"
    assert models["fake/writer"]["capabilities"]["streaming"] is True
    assert models["fake/encoder"]["capabilities"] is None


@pytest.mark.parametrize("name", ["fake/encoder", "fake%2Fencoder", "encoder", "fake__encoder"])
async def test_one_model_is_shown_by_any_of_its_names(http, name):
    async with http.get(f"/v1/models/{name}") as response:
        assert (await response.json())["name"] == "fake/encoder"


async def test_a_model_that_is_not_there_is_404(http):
    async with http.get("/v1/models/none/such") as response:
        assert (await response.json())["detail"]["code"] == "MODEL_NOT_FOUND"
        assert response.status == 404


@pytest.mark.parametrize("action", ["load", "unload", "pin", "unpin"])
async def test_an_operator_acts_on_a_model(http, engine, action):
    async with http.post(f"/v1/models/fake/encoder:short/{action}") as response:
        said = await response.json()

    assert engine.actions == [(action, "fake/encoder:short")]
    assert said["name"] == "fake/encoder"
    assert said["no_longer_fits"] == (["fake/writer"] if action == "pin" else [])


async def test_an_action_that_is_none_is_told_what_there_is(http):
    async with http.post("/v1/models/fake/encoder/explode") as response:
        said = (await response.json())["detail"]

    assert (response.status, said["code"]) == (404, "NOT_FOUND")
    assert said["message"] == (
        "'explode' is nothing that a model can be told; "
        "use load, unload, pin, unpin, drain, pause, resume, reload, adjust."
    )


async def test_a_pin_that_does_not_fit_is_507(http, engine):
    engine.failure = NoRoom("needs 3 GiB, 2 GiB are left", needed=3)
    async with http.post("/v1/models/encoder/pin") as response:
        said = (await response.json())["detail"]

    assert (response.status, said["code"], said["needed"]) == (507, "INSUFFICIENT_MEMORY", 3)


async def test_health_is_a_gateways(http, engine):
    async with http.get("/health") as response:
        said = await response.json()
    engine.accepting = False
    async with http.get("/health") as response:
        later = await response.json()

    assert (said["type"], said["status"], later["status"]) == ("gateway", "healthy", "degraded")
    assert said["workers"][0]["url"] == str(response.url.origin())
    assert said["workers"][0]["memory_used_bytes"] == 1000
    assert said["configured_gpu_types"] == ["cpu"]


async def test_a_viewer_gets_one_snapshot_after_another(http):
    async with http.ws_connect("/ws/status") as socket:
        first, second = await socket.receive_json(), await socket.receive_json()

    assert second["timestamp"] > first["timestamp"]
    assert first["gpus"][0]["lines"] == {"weights": 1000}
    assert first["server"]["pid"] > 0
    assert {m["name"] for m in first["models"]} >= {"fake/encoder", "fake/writer"}


async def test_a_viewer_does_not_keep_the_server_from_stopping(engine):
    async with ClientSession() as http:
        with anyio.fail_after(2):
            async with serving(engine) as url:
                socket = await http.ws_connect(f"{url}/ws/cluster-status")
                await socket.receive_json()
        message = await socket.receive()

    assert message.data == 1001


async def test_pools_are_kept_renewed_listed_and_forgotten(http):
    body = {"name": "Eval", "gpus": {"l4": 1}, "unheard_of": 1}
    async with http.post("/v1/pools", json=body) as response:
        made = await response.json()
    async with http.post("/v1/pools/eval/renew") as response:
        renewed = await response.json()
    async with http.get("/v1/pools") as response:
        listed = await response.json()
    async with http.delete("/v1/pools/eval") as deleted:
        pass
    async with http.post("/v1/pools/eval/renew") as gone:
        pass

    assert made["name"] == "eval"
    assert made["status"]["assigned_workers"][0]["name"] == "serai"
    assert renewed["status"]["last_renewed"] >= made["status"]["last_renewed"]
    assert [p["name"] for p in listed["pools"]] == ["eval"]
    assert (deleted.status, gone.status) == (200, 404)


@pytest.mark.parametrize("body", [{}, {"name": "a/b"}, {"name": 1}, {"name": "a", "gpus": []}])
async def test_a_wrong_pool_is_refused(http, body):
    async with http.post("/v1/pools", json=body) as response:
        assert response.status == 400
