"""Who may ask, by which name, and when nobody may."""

from __future__ import annotations

import logging

import pytest
from aiohttp import WSServerHandshakeError

from engine.config import Settings
from tests.web.fakes import FakeEngine

pytestmark = pytest.mark.anyio

ENCODE = "/v1/encode/fake/encoder"
BODY = {"items": [{"text": "a very private text"}]}


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(Settings(allowed_hosts=("serai.example.org",)))


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8080",
        "localhost.:8080",
        "127.0.0.1:9",
        "127.0.0.2",
        "[::1]:8080",
        "serai.example.org",
        "serai.example.org:443",
    ],
)
async def test_our_own_names_are_answered(http, host):
    async with http.get("/v1/models", headers={"Host": host}) as response:
        assert response.status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example.org", "localhost.evil.org", "10.0.0.1", "[", "", "127.0.0.1.nip.io", "a@localhost.x"],
)
@pytest.mark.parametrize("path", ["/", "/v1/models", "/metrics", "/nothing", "/static/console.css"])
async def test_other_names_are_refused_everywhere(http, host, path):
    async with http.get(path, headers={"Host": host}) as response:
        said = await response.json()

    assert (response.status, said["detail"]["code"]) == (403, "FORBIDDEN")


async def test_probes_may_come_by_any_name(http):
    for path in ("/healthz", "/livez", "/readyz"):
        async with http.get(path, headers={"Host": "10.1.2.3:8080"}) as response:
            assert (response.status, await response.text()) == (200, "ok")


async def test_a_server_that_listens_everywhere_is_reached_by_address_not_by_any_name(engine, http):
    engine.settings = Settings(host="0.0.0.0")
    async with http.get("/v1/models", headers={"Host": "10.0.0.1:8080"}) as by_address:
        pass
    async with http.get("/v1/models", headers={"Host": "evil.example.org"}) as by_name:
        pass

    assert (by_address.status, by_name.status) == (200, 403)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "https://any.org"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost:8080"}, 403),
        ({"Origin": "http://localhost:8080"}, 200),
        ({"Origin": "http://LOCALHOST:8080"}, 200),
        ({"Origin": "http://localhost:9090"}, 403),
        ({"Origin": "http://evil.org"}, 403),
        ({"Origin": "http://evil.org/localhost:8080"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
    ],
)
async def test_a_browser_may_change_things_only_from_our_own_pages(http, engine, headers, status):
    async with http.post(ENCODE, json=BODY, headers={"Host": "localhost:8080", **headers}) as response:
        pass

    assert response.status == status
    assert len(engine.requests) == (status == 200)


@pytest.mark.parametrize("path", ["/v1/pools", "/v1/models/fake/encoder/load", "/v1/generate/fake/writer"])
async def test_no_unsafe_route_is_left_out(http, path):
    async with http.post(path, headers={"Origin": "http://evil.org"}) as response:
        assert response.status == 403
    async with http.delete("/v1/pools/p", headers={"Origin": "http://evil.org"}) as response:
        assert response.status == 403


async def test_pages_elsewhere_may_not_watch(http):
    with pytest.raises(WSServerHandshakeError, match="403"):
        await http.ws_connect("/ws/status", headers={"Origin": "http://evil.org"})


async def test_nothing_new_is_taken_while_the_server_drains(http, engine):
    engine.accepting = False
    async with http.post(ENCODE, json=BODY) as refused:
        said = await refused.json()
    async with http.get("/readyz") as unready:
        pass
    async with http.get("/livez") as alive:
        pass
    async with http.get("/v1/models") as looked:
        pass

    assert (refused.status, said["detail"]["code"], refused.headers["Retry-After"]) == (
        503,
        "QUEUE_FULL",
        "1",
    )
    assert (unready.status, unready.headers["X-SIE-Error-Code"]) == (503, "QUEUE_FULL")
    assert "Retry-After" in unready.headers
    assert (alive.status, looked.status) == (200, 200)
    assert engine.requests == []


async def test_the_log_has_a_line_for_each_request_and_nothing_of_its_content(http, caplog):
    with caplog.at_level(logging.DEBUG):
        async with http.post(ENCODE + "?x=%0Aforged", json=BODY, headers={"X-Request-ID": "job-7"}):
            pass
        async with http.get("/healthz"):
            pass

    lines = [r for r in caplog.records if r.name == "web.ended"]
    assert [r.levelname for r in lines] == ["INFO", "DEBUG"]
    said = lines[0].told.fields()
    assert (said["request_id"], said["route"], said["status"]) == ("job-7", "/v1/encode/{model}", 200)
    assert "private" not in caplog.text and "forged" not in caplog.text


async def test_every_answer_forbids_scripts_from_elsewhere(http):
    for path in ("/", "/healthz", "/v1/models", "/nothing", "/static/console.css"):
        async with http.get(path) as response:
            assert "default-src 'none'" in response.headers["Content-Security-Policy"], path
            assert response.headers["Server"] == "serai", path
