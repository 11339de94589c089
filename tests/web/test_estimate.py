"""What a call would cost, asked in each of the forms that the call itself has."""

from __future__ import annotations

import msgspec
import pytest

from engine.errors import DeadlineExceeded, InvalidInput, QueueFull
from engine.estimates import Costed, Estimated, Outlook
from engine.requests import GenerateOptions, ScoreOptions, Task, Usage
from web.wire import endpoints
from web.wire.estimate import Estimation, answer

pytestmark = pytest.mark.anyio
ENCODE = {"task": "encode", "model": "fake/encoder", "items": [{"text": "a b"}, {"text": "c"}]}


async def estimate(http, body):
    async with http.post("/v1/estimate", json=body) as answer:
        return answer.status, await answer.json()


async def test_cost_and_times_come_in_real_units(http, engine):
    engine.outlook = Outlook(cold=True, wait=0.25, load=2.0, run=0.5)

    status, said = await estimate(http, ENCODE)

    assert status == 200
    assert said == {
        "model": "fake/encoder",
        "task": "encode",
        "unit": "words",
        "cost": 3,
        "costs": [2, 1],
        "usage": {"input_tokens": 3},
        "cold": True,
        "predicted": {"wait_ms": 250.0, "load_ms": 2000.0, "run_ms": 500.0, "total_ms": 2750.0},
        "decision": "admit",
        "why": None,
        "degrade_to": None,
    }
    assert msgspec.convert(said, Estimation).decision == "admit"


async def test_what_nobody_knows_is_null(http, engine):
    engine.outlook = Outlook(cold=True, wait=0.0, load=None, run=None)

    _, said = await estimate(http, ENCODE)

    assert said["predicted"] == {"wait_ms": 0.0, "load_ms": None, "run_ms": None, "total_ms": None}


async def test_a_refusal_is_told_with_what_the_call_would_be_told(http, engine):
    engine.outlook = Outlook(False, 9.0, 0.0, 1.0, refusal=QueueFull("Full.").after(3.0))

    _, said = await estimate(http, ENCODE)

    assert said["decision"] == "refuse"
    assert said["why"] == {"code": "QUEUE_FULL", "message": "Full.", "retry_after": 3.0}


@pytest.mark.parametrize(
    ("endpoint", "request_body", "task"),
    [
        ("/v1/encode/fake/encoder", {"items": [{"text": "a"}]}, Task.ENCODE),
        ("/v1/encode/fake/encoder:short", {"items": [{"text": "a"}]}, Task.ENCODE),
        ("/v1/score/fake/reranker", {"query": {"text": "q"}, "items": [{"text": "a"}]}, Task.SCORE),
        ("/v1/extract/fake/extractor", {"items": [{"text": "a"}]}, Task.EXTRACT),
        ("/v1/generate/fake/writer", {"prompt": "a", "max_new_tokens": 7}, Task.GENERATE),
        ("/v1/rerank", {"model": "fake/reranker", "query": "q", "documents": ["a"]}, Task.SCORE),
        ("/v1/embeddings", {"model": "fake/encoder", "input": "a"}, Task.ENCODE),
        (
            "/v1/chat/completions",
            {"model": "fake/writer", "messages": [{"role": "user", "content": "a"}]},
            Task.GENERATE,
        ),
    ],
)
async def test_a_call_is_named_by_its_path_with_its_own_body(http, engine, endpoint, request_body, task):
    status, said = await estimate(http, {"endpoint": endpoint, "request": request_body})

    assert (status, said["task"]) == (200, task)
    assert engine.estimated[0].task is task
    assert len(engine.estimated[0].items) == 1


async def test_generate_refuses_strange_fields_here_too_but_not_those_that_name_it(http, engine):
    body = {"task": "generate", "model": "fake/writer", "prompt": "a", "max_new_tokens": 3}

    status, _ = await estimate(http, body)
    strange, said = await estimate(http, {**body, "max_tokens": 3})

    assert (status, strange) == (200, 400)
    assert isinstance(engine.estimated[0].options, GenerateOptions)
    assert "max_tokens" in said["detail"]["message"]


async def test_msgpack_is_read_as_on_the_native_routes(http, engine):
    body = {"task": "score", "model": "fake/reranker", "query": {"text": "q"}, "items": [{"text": "a b"}]}
    headers = {"Content-Type": "application/msgpack", "Accept": "application/msgpack"}

    async with http.post("/v1/estimate", data=msgspec.msgpack.encode(body), headers=headers) as answer:
        said = msgspec.msgpack.decode(await answer.read())

    assert said["costs"] == [2]
    assert isinstance(engine.estimated[0].options, ScoreOptions)


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({}, 400, "Name task and model"),
        ({"task": "encode"}, 400, "Name task and model"),
        ({"task": "sing", "model": "fake/encoder"}, 400, "task"),
        ({"task": "encode", "model": "fake/encoder", "items": []}, 400, "items is empty"),
        ({"task": "encode", "model": "fake/encodr", "items": [{"text": "a"}]}, 404, "fake/encoder"),
        ({"endpoint": "/v1/encode/fake/encoder"}, 400, "request is missing"),
        ({"endpoint": "/v1/encode/", "request": {}}, 400, "endpoint is '/v1/encode/'"),
        ({"endpoint": "/v1/models", "request": {}}, 400, "endpoint is '/v1/models'"),
        ({"endpoint": 3, "request": {}}, 400, "endpoint"),
        ({"endpoint": "/v1/encode/fake/encoder", "request": []}, 400, "list"),
        ({"endpoint": "/v1/encode/fake/encoder", "request": None}, 400, "request is missing"),
    ],
)
async def test_what_is_no_call_is_refused(http, engine, body, status, said):
    got, answer = await estimate(http, body)

    assert got == status
    assert said in answer["detail"]["message"]
    assert engine.estimated == []


async def test_what_the_call_would_fail_with_fails_the_estimate(http, engine):
    engine.failure = InvalidInput("fake/encoder cannot score.").at(1)

    status, said = await estimate(http, ENCODE)

    assert (status, said["detail"]["code"], said["detail"]["item"]) == (400, "INVALID_INPUT", 1)


def test_every_reader_that_takes_no_model_from_the_path_finds_one_in_the_body():
    for path, (_, reader) in endpoints.NAMING.items():
        assert endpoints.of(path)[1] == ""
        assert reader is endpoints.of(path)[2]


@pytest.mark.parametrize(
    ("refusal", "degrade", "decision", "to"),
    [
        (None, "fake/small", "admit", None),
        (QueueFull("full"), "fake/small", "degrade", "fake/small"),
        (QueueFull("full"), None, "refuse", None),
        (DeadlineExceeded(), "fake/small", "refuse", None),
    ],
)
def test_only_want_of_room_sends_a_call_to_another_model(refusal, degrade, decision, to):
    costed = Costed("fake/encoder", "words", (1,), Usage(1), degrade)

    said = answer(Task.ENCODE, Estimated(costed, Outlook(False, 0.0, 0.0, 0.0, refusal)))

    assert (said["decision"], said["degrade_to"]) == (decision, to)
