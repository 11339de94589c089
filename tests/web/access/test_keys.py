"""Keys as callers send them: recognised, limited, counted, never logged; refused in each API's own form."""

from __future__ import annotations

import logging
import time

import anyio
import pytest
from aiohttp import WSMsgType
from sie_sdk import SIEAsyncClient, SIEClient

from engine.access.changes import Revoke
from engine.access.credentials import new_key
from engine.access.principals import Limits, Scope
from engine.requests import ServiceClass
from tests.web.access.conftest import bearer
from tests.web.conftest import serving

pytestmark = pytest.mark.anyio

ENCODE = "/v1/encode/fake/encoder"
BODY = {"items": [{"text": "hello"}]}


async def encode(http, headers, path=ENCODE, body=BODY):
    async with http.post(path, json=body, headers=headers) as answer:
        return answer.status, answer.headers, await answer.json() if answer.status != 200 else None


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer KEY"},
        {"Authorization": "bearer KEY"},
        {"Authorization": "Bearer  KEY "},
        {"x-api-key": "KEY"},
        {"X-API-Key": "KEY"},
        {"api-key": "KEY"},
        {"Authorization": "Bearer KEY", "x-api-key": "something else"},
    ],
)
async def test_a_key_may_be_sent_in_these_ways(guarded, http, headers):
    secret = guarded.key("bot")
    status, *_ = await encode(http, {k: v.replace("KEY", secret) for k, v in headers.items()})

    assert status == 200


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({}, "wants an API key"),
        ({"Authorization": "Bearer sk-123"}, "no API key of Serai"),
        ({"Authorization": "Bearer "}, "no API key of Serai"),
        ({"Authorization": f"Bearer {new_key()}"}, "does not know"),
        ({"Authorization": "Basic dXNlcjpwYXNz"}, "is not understood"),
        ({"Authorization": "KEY"}, "is not understood"),
        ({"x-api-key": "Bearer KEY"}, "no API key of Serai"),
        ({"Cookie": "serai_session=KEY", "Sec-Fetch-Site": "same-origin"}, "wants an API key"),
    ],
)
async def test_without_a_good_key_the_answer_says_what_is_wrong(guarded, http, engine, headers, said):
    secret = guarded.key("bot")
    status, answered, body = await encode(http, {k: v.replace("KEY", secret) for k, v in headers.items()})

    assert (status, body["detail"]["code"]) == (401, "UNAUTHORIZED")
    assert said in body["detail"]["message"] and secret[14:18] not in str(body)
    assert answered["WWW-Authenticate"].startswith("Bearer")
    assert answered["X-SIE-Error-Code"] == "UNAUTHORIZED"
    assert engine.requests == []


async def test_a_key_of_another_scope_or_model_is_told_which_it_needs(guarded, http, engine):
    metrics = guarded.key("scraper", Scope.METRICS)
    narrow = guarded.key("narrow", models=("other/*", "fake/rer*"))
    status, _, body = await encode(http, bearer(metrics))
    assert (status, body["detail"]["code"]) == (403, "FORBIDDEN")
    assert "scope call" in body["detail"]["message"]
    status, _, body = await encode(http, bearer(narrow))
    assert (status, body["detail"]["code"]) == (403, "FORBIDDEN")
    assert "not for fake/encoder; it is for other/*, fake/rer*" in body["detail"]["message"]
    assert engine.requests == []

    status, *_ = await encode(
        http, bearer(narrow), "/v1/score/fake/reranker", {"query": {"text": "q"}, **BODY}
    )
    assert status == 200


async def test_another_name_of_a_model_does_not_get_round_a_keys_globs(guarded, http):
    narrow = bearer(guarded.key("narrow", models=("fake/reranker",)))
    for name in ("encoder", "fake__encoder", "fake/encoder:short", "fake%2Fencoder"):
        status, *_ = await encode(http, narrow, f"/v1/encode/{name}")
        assert status == 403, name


async def test_other_apis_are_refused_in_their_own_form(guarded, http):
    narrow = bearer(guarded.key("narrow", models=("nothing/*",)))
    for headers, expected in (({}, 401), (narrow, 403)):
        openai = {"model": "fake/encoder", "input": "x"}
        status, _, body = await encode(http, headers, "/v1/embeddings", openai)
        assert (status, set(body["error"])) == (expected, {"message", "type", "param", "code"})
        cohere = {"model": "fake/reranker", "query": "q", "documents": ["d"]}
        status, _, body = await encode(http, headers, "/v2/rerank", cohere)
        assert status == expected and "message" in body
        status, _, body = await encode(http, headers, "/tei/fake/encoder/embed", {"inputs": "x"})
        assert (status, set(body)) == (expected, {"error", "error_type"})


async def test_a_revoked_key_stops_at_once(guarded, http, engine):
    headers = bearer(guarded.key("bot"))
    assert (await encode(http, headers))[0] == 200
    (principal,) = engine.access.principals.values()
    await engine.access.change(Revoke(principal.id), "tester")

    status, _, body = await encode(http, headers)
    assert status == 401 and "revoked" in body["detail"]["message"]


async def test_who_watches_is_cut_off_when_the_key_is_revoked(guarded, http, engine):
    headers = bearer(guarded.key("bot"))
    async with http.ws_connect("/ws/status", headers=headers) as socket:
        assert (await socket.receive()).type is WSMsgType.TEXT
        (principal,) = engine.access.principals.values()
        await engine.access.change(Revoke(principal.id), "tester")
        with anyio.fail_after(5):
            while (message := await socket.receive()).type is WSMsgType.TEXT:
                pass

    assert (message.type, message.data) == (WSMsgType.CLOSE, 1008)


@pytest.mark.parametrize(
    "query", ["api_key=KEY", "key=x", "Api-Key=x", "token=abc", "access_token=x", "anything=KEY"]
)
async def test_a_key_in_the_address_is_refused_and_not_written_down(guarded, http, engine, caplog, query):
    secret = guarded.key("bot")
    with caplog.at_level(logging.DEBUG):
        query = query.replace("KEY", secret)
        status, _, body = await encode(http, bearer(secret), f"{ENCODE}?{query}")

    assert (status, body["detail"]["code"]) == (400, "INVALID_INPUT")
    assert "address" in body["detail"]["message"]
    assert secret not in caplog.text + str(body) and engine.requests == []


@pytest.mark.parametrize("path", ["/v1/models/KEY", "/v1/encode/KEY", "/nowhere/KEY/x", f"{ENCODE}?a=xKEY"])
async def test_a_key_anywhere_in_the_address_is_refused_and_masked_in_the_log(guarded, http, caplog, path):
    secret = guarded.key("bot")
    with caplog.at_level(logging.DEBUG):
        status, _, body = await encode(http, bearer(secret), path.replace("KEY", secret))

    assert (status, body["detail"]["code"]) == (400, "INVALID_INPUT")
    assert secret[6:] not in caplog.text + str(body)


async def test_no_key_is_ever_logged(guarded, http, caplog):
    secret, admin = guarded.key("bot"), guarded.key("admin", Scope.ADMIN)
    with caplog.at_level(logging.DEBUG):
        await encode(http, bearer(secret))
        await encode(http, bearer(secret[:-1]))
        await encode(http, {"x-api-key": secret}, "/v1/encode/nobody/knows")
        async with http.post("/v1/admin/keys", json={"name": "new"}, headers=bearer(admin)) as answer:
            made = (await answer.json())["key"]

    for kept in (secret, admin, made):
        assert kept[6:] not in caplog.text and kept[14:] not in caplog.text


async def test_a_call_is_the_keys_own_and_of_its_class_unless_it_names_one(guarded, http, engine):
    secret = guarded.key("bot", service_class=ServiceClass.BACKGROUND)
    await encode(http, bearer(secret))
    await encode(http, {**bearer(secret), "X-Serai-Class": "interactive"})
    plain = guarded.key("plain")
    await encode(http, bearer(plain))

    asked = [(r.principal, r.service_class) for r in engine.requests]
    assert asked == [
        (f"key:{secret[6:14]}", ServiceClass.BACKGROUND),
        (f"key:{secret[6:14]}", ServiceClass.INTERACTIVE),
        (f"key:{plain[6:14]}", None),
    ]


async def test_too_many_requests_are_told_when_to_come_back(guarded, http, engine):
    headers = bearer(guarded.key("bot", limits=Limits(rate=0.5, burst=2)))
    statuses = [(await encode(http, headers))[0] for _ in range(3)]
    status, answered, body = await encode(http, headers)

    assert statuses == [200, 200, 429] and status == 429
    assert body["detail"]["code"] == answered["X-SIE-Error-Code"] == "RATE_LIMITED"
    assert 0 < float(answered["Retry-After"]) <= 2.0
    assert len(engine.requests) == 2
    async with http.get("/v1/models", headers=headers) as answer:
        assert answer.status == 200  # looking is not limited


async def test_too_many_in_flight_are_refused_and_what_ends_makes_room(guarded, http, engine):
    headers, engine.wait = bearer(guarded.key("bot", limits=Limits(concurrency=1))), 0.3
    answers = []

    async def ask():
        answers.append((await encode(http, headers))[0])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        while not engine.requests:  # noqa: ASYNC110  it is on the other side of a socket
            await anyio.sleep(0.005)
        assert (await encode(http, headers))[0] == 429
    engine.wait = 0.0

    assert answers == [200]
    assert (await encode(http, headers))[0] == 200


async def test_who_hangs_up_makes_room_too(guarded, http, engine):
    headers, engine.wait = bearer(guarded.key("bot", limits=Limits(concurrency=1))), 60
    with anyio.move_on_after(0.2):
        await encode(http, headers)
    with anyio.fail_after(5):
        await engine.left.wait()
    engine.wait = 0.0

    assert (await encode(http, headers))[0] == 200


async def test_metrics_are_read_on_the_machine_itself_or_with_a_key_for_them(guarding):
    from aiohttp import ClientSession

    for settings, local in (({}, 200), ({"auth": "keys"}, 401)):
        guarded = guarding(**settings)
        scraper = bearer(guarded.key("scraper", Scope.METRICS))
        async with serving(guarded.engine) as url, ClientSession(url) as http:
            for headers, status in (
                ({}, local),
                (scraper, 200),
                ({"X-Forwarded-For": "10.0.0.1"}, 401),
                ({"Forwarded": "for=10.0.0.1"}, 401),
            ):
                async with http.get("/metrics", headers=headers) as answer:
                    assert answer.status == status, (settings, headers)


async def test_with_keys_required_nobody_is_let_in_while_there_is_none(guarding):
    from aiohttp import ClientSession

    guarded = guarding(auth="keys")
    async with serving(guarded.engine) as url, ClientSession(url) as http:
        assert (await encode(http, {}))[0] == 401
        assert (await encode(http, bearer(guarded.key("bot"))))[0] == 200


async def test_with_it_turned_off_keys_are_not_looked_at(guarding):
    from aiohttp import ClientSession

    guarded = guarding(auth="off")
    guarded.key("bot")
    async with serving(guarded.engine) as url, ClientSession(url) as http:
        for headers in ({}, bearer("sk-any"), {"x-api-key": "x"}):
            assert (await encode(http, headers))[0] == 200


async def test_a_call_is_refused_before_its_body_is_read(guarded, http):
    guarded.key("bot")

    async def endless():
        yield b"{"
        await anyio.sleep(60)

    began = time.monotonic()
    async with http.post(ENCODE, data=endless()) as answer:
        assert answer.status == 401
    assert time.monotonic() - began < 5


async def test_the_published_client_works_with_a_key_and_not_without(guarded, url):
    secret = guarded.key("bot")

    def ask(key):
        with SIEClient(url, api_key=key) as client:
            return client.encode("fake/encoder", {"text": "hello"}), client.list_models()

    vector, models = await anyio.to_thread.run_sync(ask, secret)
    assert vector["dense"].shape == (384,) and models
    with pytest.raises(Exception, match="API key"):
        await anyio.to_thread.run_sync(ask, "")

    async with SIEAsyncClient(url, api_key=secret) as client:
        assert (await client.encode("fake/encoder", {"text": "hello"}))["dense"].shape == (384,)
