from __future__ import annotations

import pytest

from engine.config import Settings
from tests.web.fakes import FakeEngine

pytestmark = pytest.mark.anyio

SITE = {"Origin": "https://app.example", "Sec-Fetch-Site": "cross-site"}
PREFLIGHT = {
    **SITE,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization",
}
CHAT = "/v1/chat/completions"
BODY = {"model": "fake/writer", "messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(Settings(cors_origins=("https://app.example/",)))


async def test_a_named_site_may_ask_and_read(http):
    async with http.options(CHAT, headers=PREFLIGHT) as asked:
        assert (asked.status, asked.headers["Access-Control-Allow-Headers"]) == (204, "authorization")
        assert asked.headers["Access-Control-Allow-Origin"] == "https://app.example"
    async with http.post(CHAT, json=BODY, headers=SITE) as answered:
        assert (answered.status, answered.headers["Vary"]) == (200, "Origin")
        assert answered.headers["Access-Control-Allow-Origin"] == "https://app.example"
    async with http.post(CHAT, json={}, headers=SITE) as refused:
        assert refused.status == 400
        assert refused.headers["Access-Control-Allow-Origin"] == "https://app.example"
    async with http.get("/v1/models", headers=SITE) as listed:
        assert listed.headers["Access-Control-Allow-Origin"] == "https://app.example"
        assert "Access-Control-Allow-Credentials" not in listed.headers


async def test_other_sites_may_not(http):
    other = {**PREFLIGHT, "Origin": "https://evil.example"}
    async with http.options(CHAT, headers=other) as asked:
        assert asked.status == 405
        assert "Access-Control-Allow-Origin" not in asked.headers
    async with http.post(CHAT, json=BODY, headers={**SITE, "Origin": "https://evil.example"}) as answered:
        assert answered.status == 403


@pytest.mark.parametrize("path", ["/v1/models/fake/encoder/unload", "/v1/pools", "/"])
async def test_what_operators_do_is_for_no_other_site(http, path):
    async with http.options(path, headers=PREFLIGHT) as asked:
        assert asked.status == 405
    async with http.post(path, json={"name": "a"}, headers=SITE) as answered:
        assert answered.status in (403, 405)
        assert "Access-Control-Allow-Origin" not in answered.headers


async def test_a_cookie_is_taken_from_no_other_site(http):
    async with http.post(CHAT, json=BODY, headers={**SITE, "Cookie": "serai_session=x"}) as answered:
        assert answered.status == 403


async def test_without_the_setting_no_site_may(engine, http):
    engine.settings = Settings()
    async with http.options(CHAT, headers=PREFLIGHT) as asked:
        assert asked.status == 405
    async with http.post(CHAT, json=BODY, headers=SITE) as answered:
        assert (answered.status, "Vary" in answered.headers) == (403, False)


async def test_a_star_is_every_site(engine, http):
    engine.settings = Settings(cors_origins=("*",))
    async with http.post(CHAT, json=BODY, headers={**SITE, "Origin": "null"}) as answered:
        assert (answered.status, answered.headers["Access-Control-Allow-Origin"]) == (200, "null")


@pytest.mark.parametrize("path", ["/embed", "/rerank", "/tei/fake/encoder/embed", "/v1/estimate"])
async def test_every_call_may_be_made_from_a_named_site(http, path):
    async with http.options(path, headers=PREFLIGHT) as asked:
        assert asked.status == 204
    async with http.post(path, json={}, headers=SITE) as answered:
        assert answered.headers["Access-Control-Allow-Origin"] == "https://app.example"
