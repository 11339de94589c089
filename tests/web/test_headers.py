"""What every answer says beside its body, and in which form the body comes."""

from __future__ import annotations

import math
import re

import msgpack
import pytest

from engine import errors as engine_errors
from engine.errors import KINDS, InferenceFailed, StillLoading
from engine.requests import Response, Scored, ServiceClass, Usage
from tests.web.fakes import TIMING
from web import caller, errors

pytestmark = pytest.mark.anyio

ENCODE = "/v1/encode/fake/encoder"
BODY = {"items": [{"text": "a"}]}


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, "application/msgpack"),
        ("*/*", "application/msgpack"),
        ("text/html", "application/msgpack"),
        ("application/msgpack, application/json", "application/msgpack"),
        ("application/json", "application/json"),
        ("application/json; q=0.5, */*", "application/json"),
    ],
)
async def test_an_answer_comes_in_the_form_that_is_accepted(http, accept, form):
    headers = {} if accept is None else {"Accept": accept}
    async with http.post(ENCODE, json=BODY, headers=headers, skip_auto_headers=["Accept"]) as response:
        body = await response.read()

    assert response.content_type == form
    assert body[:1] == (b"{" if form.endswith("json") else b"\x84")


async def test_a_json_answer_has_plain_lists(http):
    params = {"output_types": ["dense", "multivector"], "output_dtype": "float16"}
    async with http.post(
        ENCODE, json={**BODY, "params": params}, headers={"Accept": "application/json"}
    ) as response:
        item = (await response.json())["items"][0]

    assert len(item["dense"]["values"]) == 384
    assert item["dense"]["dtype"] == "float16"
    assert [len(row) for row in item["multivector"]["values"]] == [96] * 4
    assert (item["multivector"]["token_dims"], item["multivector"]["num_tokens"]) == (96, 4)
    assert "id" not in item


async def test_packed_bits_are_called_binary_and_keep_the_models_dims(http):
    params = {"output_dtype": "ubinary"}
    async with http.post(
        ENCODE, json={**BODY, "params": params}, headers={"Accept": "application/json"}
    ) as response:
        dense = (await response.json())["items"][0]["dense"]

    assert (dense["dims"], dense["dtype"], len(dense["values"])) == (384, "binary", 48)


async def test_an_answer_says_where_its_time_went_and_what_it_took(http):
    async with http.post(ENCODE, json=BODY) as response:
        said = response.headers

    assert said["X-Queue-Time"] == "0.100"
    assert said["X-Tokenization-Time"] == "0.200"
    assert said["X-Inference-Time"] == "0.500"
    assert said["X-Load-Time"] == "0.000"
    assert said["X-Total-Time"] == "1.000"
    assert said["X-SIE-Units-Input-Tokens"] == "3"
    assert "X-SIE-Units-Pages" not in said
    assert said["X-SIE-Model-Revision"] == "r1"
    assert said["X-SIE-Served-By"] == "local"
    assert said["X-SIE-Server-Version"] == "0.10.1"
    assert said["X-Serai-Cold"] == "false"
    assert said["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'none'" in said["Content-Security-Policy"]


async def test_score_counts_its_pairs(http):
    body = {"query": {"text": "a"}, "items": [{"text": "a"}, {"text": "b"}]}
    async with http.post("/v1/score/fake/reranker", json=body) as response:
        assert response.headers["X-SIE-Units-Pairs"] == "2"


async def test_a_sane_request_id_is_kept(http, engine):
    async with http.post(ENCODE, json=BODY, headers={"X-Request-ID": "job-7"}) as response:
        assert response.headers["X-SIE-Request-ID"] == "job-7"

    assert engine.requests[0].id == "job-7"


@pytest.mark.parametrize("said", ["", "a b", "ä", "x" * 200, "a;b", "${jndi}"])
def test_a_strange_request_id_is_replaced(said):
    assert re.fullmatch(r"[0-9a-f]{24}", caller.request_id({"X-Request-ID": said}))


def test_a_line_break_cannot_reach_the_log():
    assert "\n" not in caller.request_id({"X-Request-ID": "a\nb"})


async def test_class_deadline_and_session_reach_the_engine(http, engine):
    headers = {
        "X-Serai-Class": "Interactive",
        "X-Serai-Deadline-Ms": "1500",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }
    began = engine.now()
    async with http.post(ENCODE, json=BODY, headers=headers):
        pass

    request = engine.requests[0]
    assert request.service_class is ServiceClass.INTERACTIVE
    assert 1.4 < request.deadline - began < 2.5
    assert re.fullmatch(r"[0-9a-f]{16}", request.session)


@pytest.mark.parametrize(
    ("header", "chosen"),
    [({"X-Serai-Class": "interactive"}, ServiceClass.INTERACTIVE), ({}, ServiceClass.BACKGROUND)],
    ids=["header", "body"],
)
async def test_the_headers_class_wins_over_the_bodys(http, engine, header, chosen):
    body = {**BODY, "params": {"options": {"class": "background"}}}
    async with http.post(ENCODE, json=body, headers=header):
        pass

    assert engine.requests[0].service_class is chosen


async def test_whose_a_request_is_without_keys_is_a_keyed_hash_of_its_token(http, engine):
    for said in ("Bearer one", "bearer  one ", "Bearer two", None):
        async with http.post(ENCODE, json=BODY, headers={"Authorization": said} if said else {}):
            pass

    first, again, second, nobody = [request.principal for request in engine.requests]
    assert first == again != second and nobody == ""
    assert re.fullmatch(r"[0-9a-f]{16}", first)
    assert caller.principal({"Authorization": "Bearer one"}, b"another key") != first
    assert caller.principal({"Authorization": "Basic b25l"}, b"key") == ""


async def test_who_says_nothing_has_no_deadline_class_or_session(http, engine):
    async with http.post(ENCODE, json=BODY):
        pass

    request = engine.requests[0]
    assert (request.service_class, request.deadline, request.session) == (None, math.inf, None)


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Serai-Class": "urgent"},
        {"X-Serai-Deadline-Ms": "soon"},
        {"X-Serai-Deadline-Ms": "-1"},
        {"X-Serai-Deadline-Ms": "nan"},
        {"X-Serai-Deadline-Ms": "1e308"},
        {"X-Serai-Deadline-Ms": "86400001"},
        {"X-Serai-Deadline-Ms": "١٥"},
    ],
)
async def test_a_wrong_header_is_refused_by_name(http, headers):
    async with http.post(ENCODE, json=BODY, headers=headers) as response:
        said = await response.json()

    assert response.status == 400
    assert next(iter(headers)) in said["detail"]["message"]


def test_a_session_is_a_keyed_hash():
    named = {"X-Serai-Session": "claim 7"}
    traced = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    empty = {"traceparent": f"00-{'0' * 32}-b7ad6b7169203331-01"}

    assert caller.session(named, b"k") == caller.session({**named, **traced}, b"k")
    assert caller.session(named, b"k") != caller.session(named, b"other")
    assert re.fullmatch(r"[0-9a-f]{16}", caller.session(traced, b"k") or "")
    assert caller.session(empty, b"k") is None
    assert caller.session({"traceparent": "nonsense"}, b"k") is None


STATUSES = {
    "Unauthorized": 401,
    "UnknownPrincipal": 404,
    "RateLimited": 429,
    "InvalidInput": 400,
    "InputTooLong": 400,
    "ImageTooLarge": 400,
    "BodyTooLarge": 413,
    "UnknownModel": 404,
    "WeightsUnavailable": 424,
    "LoadFailed": 502,
    "StillLoading": 503,
    "QueueFull": 503,
    "ResourceExhausted": 503,
    "NoRoom": 507,
    "DeadlineExceeded": 408,
    "Forbidden": 403,
    "InferenceFailed": 500,
    "RunnerCrashed": 503,
    "Stopped": 503,
    "Paused": 503,
    "StateChanged": 409,
    "StillBusy": 409,
    "CatalogRejected": 422,
    "UnknownFile": 404,
    "UnknownRecording": 404,
    "NotFinite": 500,
    "StorageFull": 507,
    "EngineError": 500,
}
RETRIED_BY_THE_CLIENT = {"MODEL_LOADING", "QUEUE_FULL", "RESOURCE_EXHAUSTED"}
AN_OPERATORS_WILL = {"MODEL_PAUSED"}
"""Nobody knows when this ends: the client tells its caller at once."""


def test_every_error_has_a_status():
    mine = {name for name in KINDS if hasattr(engine_errors, name)}

    assert {name: errors.status(KINDS[name]()) for name in mine} == STATUSES


def test_every_503_has_a_code_that_clients_retry_and_says_when():
    for kind in errors.STATUS:
        if errors.status(kind()) == 503:
            said = errors.headers(kind())
            assert said["X-SIE-Error-Code"] in RETRIED_BY_THE_CLIENT | AN_OPERATORS_WILL, kind
            assert float(said["Retry-After"]) > 0, kind


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.25, "0.25"), (0, "0"), (3, "3"), (1 / 3, "0.333"), (100, "100"), (10.0, "10")]
)
def test_retry_after_is_a_plain_number(seconds, said):
    assert errors.headers(StillLoading().after(seconds))["Retry-After"] == said


@pytest.mark.parametrize("accept", ["application/json", "*/*", "application/msgpack"])
async def test_an_error_is_readable_to_whom_it_is_sent(http, engine, accept):
    engine.failure = StillLoading("loading").after(0.5).at(3)
    async with http.post(ENCODE, json=BODY, headers={"Accept": accept}) as response:
        body = await response.read()
        said = msgpack.unpackb(body) if "msgpack" in accept else await response.json()

    assert response.status == 503
    assert response.headers["Retry-After"] == "0.5"
    assert response.headers["X-SIE-Error-Code"] == "MODEL_LOADING"
    assert said["detail"] == {
        "code": "MODEL_LOADING",
        "message": "loading",
        "item": 3,
        "request_id": response.headers["X-SIE-Request-ID"],
    }


async def test_an_unforeseen_error_tells_nothing_and_is_logged(http, engine, caplog):
    engine.failure = RuntimeError("secret path")
    async with http.post(ENCODE, json=BODY) as response:
        said = await response.json()

    assert (response.status, said["detail"]["code"]) == (500, "INTERNAL_ERROR")
    assert "secret" not in str(said)
    assert "secret path" in caplog.text
    assert response.headers["X-SIE-Request-ID"] in caplog.text


@pytest.mark.parametrize(
    ("outputs", "item"),
    [
        ((Scored(1.0), InferenceFailed("broken")), 1),
        ((Scored(1.0), ValueError("secret")), 1),
        ((Scored(1.0), Scored(math.nan)), 1),
        ((Scored(1.0),), None),
    ],
)
async def test_a_score_with_one_bad_item_fails_as_a_whole(http, engine, outputs, item):
    engine.answer = lambda request: Response(request.model, outputs, Usage(), TIMING)
    body = {"query": {"text": "q"}, "items": [{"text": "a"}, {"text": "b"}]}
    async with http.post("/v1/score/fake/reranker", json=body) as response:
        said = (await response.json())["detail"]

    assert (response.status, said["code"], said.get("item")) == (500, "INFERENCE_ERROR", item)
    assert "secret" not in said["message"]


async def test_an_unknown_path_and_a_wrong_method_have_the_same_envelope(http):
    async with http.get("/v1/nothing") as response:
        missing = await response.json()
    async with http.put(ENCODE) as wrong:
        refused = await wrong.json()

    assert (response.status, missing["detail"]["code"]) == (404, "NOT_FOUND")
    assert (wrong.status, refused["detail"]["code"]) == (405, "METHOD_NOT_ALLOWED")
    assert wrong.headers["Allow"] == "POST"
